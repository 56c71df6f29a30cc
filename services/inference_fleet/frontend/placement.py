"""Which process answers a request: the ready ones in order, each tried only while nothing was sent to any."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inference_fleet.frontend.errors import ApiError, retry_after
from inference_fleet.route import OUTCOMES, CallerExpired, NotOwner, RouteError, StreamParts, WorkerRefused
from inference_fleet.store import DatabaseUnavailable
from inference_fleet.tunnel import TAG_BACKEND

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from inference_fleet.frontend.replica import Replica
    from inference_fleet.roster.frontend import Candidate
    from inference_fleet.route import Opened
    from inference_fleet.settings import Deadline

_log = logging.getLogger(__name__)

_COMING = frozenset({"starting", "ready"})
"""States of a process that will answer on a node that is placed on; `ready`: it came up between two looks."""


@dataclass(frozen=True)
class Placed:
    """A stream to one process that serves the model."""

    candidate: Candidate
    opened: Opened


@contextlib.asynccontextmanager
async def placed(
    replica: Replica, model: str, *, deadline: Deadline, traceparent: str
) -> AsyncIterator[Placed]:
    """The first candidate a stream opens to: fewest requests in flight first, equals in turn.

    A candidate is counted from the moment it is tried, so requests that arrive together see each other. What a
    worker itself says about a process is evidence, and that process's row is reaped; what this replica could
    not do is none, and the next candidate is tried. Nothing was sent to a process that is passed over.
    """
    candidates = replica.in_flight.order(await replica.roster.candidates(model))
    if not candidates:
        raise await _nobody(replica, model)
    failures: list[RouteError | WorkerRefused] = []
    for candidate in candidates:
        with replica.in_flight.counted(candidate.node_id):
            opened = await _try(replica, candidate, failures, deadline=deadline, traceparent=traceparent)
            if opened is not None:
                yield Placed(candidate, opened)
                return
        _log.info("model %s passed over node %s: %s", model, candidate.node_name, failures[-1])
        if not OUTCOMES[failures[-1].outcome].try_another:
            break
    raise _unplaced(model, failures)


async def _try(
    replica: Replica,
    candidate: Candidate,
    failures: list[RouteError | WorkerRefused],
    *,
    deadline: Deadline,
    traceparent: str,
) -> Opened | None:
    parts = StreamParts(
        tag=TAG_BACKEND,
        target=f"127.0.0.1:{candidate.port}",
        process_key=candidate.process_key,
        traceparent=traceparent,
    )
    try:
        return await replica.dialer.open(candidate.node_id, parts, deadline=deadline)
    except WorkerRefused as error:
        failures.append(error)
        await _reap(replica, candidate, error)
    except RouteError as error:
        failures.append(error)
    return None


async def _reap(replica: Replica, candidate: Candidate, refused: WorkerRefused) -> None:
    try:
        await replica.reaper.worker_answered(
            node_id=candidate.node_id,
            model=candidate.model,
            process_key=candidate.process_key,
            refusal_code=refused.code,
            epoch=refused.epoch,
        )
    except DatabaseUnavailable as error:
        _log.warning("the answer of node %s could not be acted on: %s", candidate.node_name, error)


async def _nobody(replica: Replica, model: str) -> ApiError:
    """No candidate: nobody has the model, or it is still starting, or nobody who has it can be given anything now."""
    having = [
        (node, str(each["state"]))
        for node in await replica.roster.nodes()
        for each in node.models
        if each["name"] == model
    ]
    again = retry_after(replica.settings.timings.heartbeat_s)  # what a row says changes with a heartbeat
    coming = [node.name for node, state in having if node.placeable and state in _COMING]
    if coming:
        text = f"model {model} is loading on {', '.join(coming[:5])}; try: ask again after Retry-After"
        return ApiError("loading", text, headers=again)
    if having:
        why = "; ".join(
            f"{node.name} is {node.status}, its tunnel {node.presence}, its process {state}"
            for node, state in having[:5]
        )
        return ApiError("no_route", f"no route to model {model}: {why}", headers=again)
    names = ", ".join((await replica.roster.model_names())[:20])
    remedy = f"one of {names}" if names else "again once a worker serves one; none does at the moment"
    return ApiError("model_not_found", f"no node serves the model {model!r}; try: {remedy}")


def _unplaced(model: str, failures: list[RouteError | WorkerRefused]) -> ApiError:
    if isinstance(failures[-1], CallerExpired):
        return ApiError("deadline_exceeded", f"{failures[-1]} (model {model})")
    said = "; ".join(dict.fromkeys(str(failure) for failure in failures))
    if all(isinstance(failure, NotOwner) for failure in failures):
        return ApiError("stale_owner", f"no route to model {model}: {said}", headers=retry_after(1))
    if all(isinstance(failure, WorkerRefused) and failure.evidence for failure in failures):
        return ApiError(
            "unavailable", f"no process of model {model} took the request: {said}", headers=retry_after(1)
        )
    return ApiError("no_route", f"no route to model {model}: {said}", headers=retry_after(1))
