"""API keys on a real database: seen once, stored as a keyed hash, ended by their owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inference_fleet.auth import Accounts, ApiKeys, Credentials, Passwords, Via, keyed_hash

if TYPE_CHECKING:
    from specs.unit.inference_fleet.conftest import Play, Stage

SECRET = b"hmac-secret"


async def user(stage: Stage, email: str) -> str:
    accounts = Accounts(
        stage.database, secret=SECRET, passwords=Passwords(), registration="open", session_ttl_s=60.0
    )
    entry = await accounts.register(Credentials(email=email, password="correct horse"))
    assert entry.principal is not None
    return entry.principal.user_id


def test_a_key_opens_for_its_owner_and_only_its_hash_is_kept(play: Play) -> None:
    async def story(stage: Stage) -> None:
        keys = ApiKeys(stage.database, secret=SECRET)
        ada, bob = await user(stage, "ada@example.org"), await user(stage, "bob@example.org")
        made = await keys.make(ada, "laptop")

        owner = await keys.owner(made.key)

        assert owner is not None
        assert (owner.user_id, owner.via, owner.may_read_fleet) == (ada, Via.KEY, True)
        assert await stage.value("SELECT key_hash FROM api_keys") == keyed_hash(SECRET, made.key)
        assert (
            await stage.value(
                "SELECT count(*) FROM api_keys a WHERE a::text LIKE %(key)s", key=f"%{made.key}%"
            )
            == 0
        )
        assert await ApiKeys(stage.database, secret=b"another").owner(made.key) is None
        bobs = await keys.owner((await keys.make(bob, "bobs")).key)
        assert bobs is not None
        assert not bobs.may_read_fleet, "a plain user's key does not read the fleet"

    play(story)


def test_a_key_is_listed_without_itself_and_ended_by_its_owner_alone(play: Play) -> None:
    async def story(stage: Stage) -> None:
        keys = ApiKeys(stage.database, secret=SECRET)
        ada, bob = await user(stage, "ada@example.org"), await user(stage, "bob@example.org")
        made = await keys.make(ada, "laptop")
        (listed,) = await keys.list_of(ada)
        assert set(listed) == {"id", "name", "created_at"}
        assert await keys.list_of(bob) == []

        assert not await keys.delete(bob, made.id)
        assert await keys.owner(made.key) is not None
        assert await keys.delete(ada, made.id)
        assert await keys.owner(made.key) is None

    play(story)


def test_what_is_no_key_opens_nothing(play: Play) -> None:
    async def story(stage: Stage) -> None:
        keys = ApiKeys(stage.database, secret=SECRET)
        for shown in ("", "bsk_", "bsk_wrong", "x" * 1000, "bsk_" + "x" * 1000):
            assert await keys.owner(shown) is None

    play(story)
