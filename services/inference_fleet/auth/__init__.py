"""Who is asking: users, sessions, API keys, the registration token, peers, and how often they may ask."""

from inference_fleet.auth.accounts import COOKIE, Accounts, Credentials, Entry, Standing
from inference_fleet.auth.clients import client_address, client_scheme
from inference_fleet.auth.hmac_secret import keyed_hash, load_hmac_secret
from inference_fleet.auth.keys import ApiKeys, KeyWanted, NewKey
from inference_fleet.auth.limiter import Limiter
from inference_fleet.auth.passwords import Passwords
from inference_fleet.auth.peer import PeerRefused, PeerTokens
from inference_fleet.auth.principal import Principal, Via
from inference_fleet.auth.tokens import bearer, same_secret

__all__ = [
    "COOKIE",
    "Accounts",
    "ApiKeys",
    "Credentials",
    "Entry",
    "KeyWanted",
    "Limiter",
    "NewKey",
    "Passwords",
    "PeerRefused",
    "PeerTokens",
    "Principal",
    "Standing",
    "Via",
    "bearer",
    "client_address",
    "client_scheme",
    "keyed_hash",
    "load_hmac_secret",
    "same_secret",
]
