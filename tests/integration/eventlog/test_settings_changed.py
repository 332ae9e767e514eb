"""Somebody changes the stream's settings while the log is in use: records would go that are to stay."""

import pytest

from restow.eventlog.jetstream.stream import stream_name
from restow.eventlog.testing import envelope


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_age": 1_000_000_000}, "max_age is 1000000000, must be 0"),
        ({"max_msgs": 2, "discard": "old"}, "discard is 'old', must be 'new'; max_msgs is 2, must be -1"),
        ({"allow_rollup_hdrs": True}, "allow_rollup_hdrs is True, must be False"),
    ],
)
async def test_a_stream_that_somebody_has_given_a_limit_is_told_while_it_is_used_and_no_more_once_it_has_none(nats_server, cluster, opened, change, said):
    log = await opened(nats_server.url, cluster)
    await log.append("session", b"[]", envelope(), expected_last=0)
    assert await log.tail() == 1
    assert log.unlike() == ""
    asked = f"STREAM.{{}}.{stream_name(cluster)}"
    before = (await log.broker.api(asked.format("INFO")))["config"]
    await log.broker.api(asked.format("UPDATE"), before | change)
    await log.tail()
    assert f"stream 'restow-{cluster}' is not configured as Restow's log: {said}. Somebody changed" in log.unlike()
    await log.broker.api(asked.format("UPDATE"), before)
    await log.tail()
    assert log.unlike() == ""
