"""Passwords set at run time, on a whole broker with its embedded store."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kwire.messages import incremental_alter_configs as incremental

from .test_broker import running

KEY = "listener.name.external.ssl.key.password"


def test_password_outlives_a_change_of_the_secret(tmp_path: Path) -> None:
    async def main() -> None:
        first = {"password.encoder.secret": "first"}
        async with running(tmp_path, **first) as (broker, client):
            node = str(broker.opened.node_id)
            change = incremental.AlterableConfig(name=KEY, config_operation=0, value="hush")
            resource = incremental.AlterConfigsResource(
                resource_type=4, resource_name=node, configs=[change]
            )
            request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
            answer = await client.ask(request, 1)
            assert [(row.error_code, row.error_message) for row in answer.responses] == [(0, None)]
        second = {"password.encoder.secret": "second", "password.encoder.old.secret": "first"}
        for settings in (second, {"password.encoder.secret": "second"}):
            async with running(tmp_path, **settings) as (broker, _):
                assert broker.config.listener("EXTERNAL")["ssl.key.password"] == "hush"

    asyncio.run(main())
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"hush" not in path.read_bytes()
