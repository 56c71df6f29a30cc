"""The pure core: no I/O, no clock, no threads, no asyncio. Import what you need from its modules."""
