"""Deleting the one row a worker's own answer was about, and nothing on any other word."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from inference_fleet.store import ReapAction
from inference_fleet.upkeep.outcomes import Source, permits

if TYPE_CHECKING:
    from inference_fleet.store import Database

_log = logging.getLogger(__name__)

# The answer is about one process, heard over one ownership: a row that another process has taken over since, or an
# answer over an epoch that has moved on, deletes nothing.
_REMOVE = """
WITH removed AS (
  DELETE FROM node_models m USING nodes n, connections c
  WHERE m.node_id = %(node_id)s AND m.name = %(model)s AND m.process_key = %(process_key)s
    AND n.id = m.node_id AND c.node_id = m.node_id AND c.epoch = %(epoch)s AND c.owner <> ''
  RETURNING n.name AS node_name, m.port
)
INSERT INTO reaps (at, node_id, node_name, action, by, reason, evidence, epoch)
SELECT clock_timestamp(), %(node_id)s, node_name, %(action)s, %(by)s, 'answer:' || %(code)s,
       jsonb_build_object('model', %(model)s::text, 'process_key', %(process_key)s::text, 'port', port,
                          'refusal', %(code)s::text),
       %(epoch)s
FROM removed
"""


class Reaper:
    """Acts on the answers of workers."""

    def __init__(self, database: Database, *, instance_id: str) -> None:
        """`instance_id` signs the journal."""
        self._database = database
        self._instance_id = instance_id

    async def worker_answered(
        self, *, node_id: str, model: str, process_key: str, refusal_code: str, epoch: int
    ) -> bool:
        """Delete the row of that process if the refusal is evidence; True when a row went, and is in the journal."""
        if not process_key or not permits(Source.ANSWER, refusal_code).delete_row:
            return False
        removed = await self._database.change(
            _REMOVE,
            {
                "node_id": node_id,
                "model": model,
                "process_key": process_key,
                "code": refusal_code,
                "epoch": epoch,
                "action": ReapAction.MODEL_DELETED.value,
                "by": self._instance_id,
            },
        )
        if removed:
            _log.warning(
                "model row deleted on the worker's answer: node=%s model=%s process=%s answer=%s epoch=%d",
                node_id,
                model,
                process_key,
                refusal_code,
                epoch,
            )
        return removed > 0
