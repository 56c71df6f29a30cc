"""Every spec runs under the blackstart plugin, found by its entry point; specs that test the plugin use pytester."""

pytest_plugins = ["pytester"]
