"""SCRAM credentials at the controller: each user of a request for itself, and credentials that
other tools wrote.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from controller.core.decisions import Publish
from controller.core.draft import Draft
from controller.core.entities import scram_admin
from controller.core.entity_commands import AlterScramUsers, ScramUserChange, ScramUsersRead
from controller.core.state import facts
from controller.core.state.cluster import Cluster
from tests.support.memory.site_model import RULES


def draft_with(**users: dict[str, str]) -> Draft:
    cluster = Cluster(rules=RULES, controller_id=1, controller_epoch=1)
    cluster.scram_users.update(users)
    return Draft(cluster)


def test_credentials_are_set_and_removed_user_by_user() -> None:
    draft = draft_with(anna={"SCRAM-SHA-256": "a", "SCRAM-SHA-512": "b"}, bert={"SCRAM-SHA-256": "c"})
    changes = (
        ScramUserChange(name="anna", set_credentials={"SCRAM-SHA-256": "new"}, remove=("SCRAM-SHA-512",)),
        ScramUserChange(name="bert", remove=("SCRAM-SHA-512",)),
        ScramUserChange(name="carl", set_credentials={"SCRAM-SHA-512": "d"}),
    )
    scram_admin.consider(draft, AlterScramUsers(changes=changes))
    decision = draft.finish("test")
    assert [outcome.error for outcome in decision.quotas] == [
        ErrorCode.none,
        ErrorCode.resource_not_found,
        ErrorCode.none,
    ]
    assert decision.quotas[1].message == "user bert has no credential of SCRAM-SHA-512 to delete"
    assert decision.facts == (
        facts.ScramUserReplaced(user="anna", credentials={"SCRAM-SHA-256": "new"}),
        facts.ScramUserReplaced(user="carl", credentials={"SCRAM-SHA-512": "d"}),
    )
    (effect,) = decision.effects
    assert isinstance(effect, Publish)
    assert effect.scram_users == {"anna", "carl"}


def test_credentials_that_another_tool_wrote_are_taken_and_not_stored_again() -> None:
    draft = draft_with(anna={"SCRAM-SHA-256": "a"}, bert={"SCRAM-SHA-256": "c"})
    scram_admin.consider(draft, ScramUsersRead(users={"bert": {"SCRAM-SHA-256": "c"}, "carl": {"SCRAM-SHA-256": "d"}}))
    assert draft.finish("test").facts == (
        facts.ScramUserReplaced(user="anna", credentials={}, must_store=False),
        facts.ScramUserReplaced(user="carl", credentials={"SCRAM-SHA-256": "d"}, must_store=False),
    )
