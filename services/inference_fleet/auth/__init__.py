"""Who is asking: users, sessions, API keys, the registration token, peers, and how often they may ask."""
