"""The console's pages by path, as a Starlette application."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Route

from . import cluster, explaining, groups, inside, messages, topics, transactions
from .console import Console, PageRefused
from .door import Door
from .pages import Pages


def application(console: Console, write_token: str) -> Door:
    """The console. Shape: without `write_token`, no route changes anything."""
    pages = Pages(console)
    page, live = pages.page, pages.live
    routes = [
        Route("/console/", page("cluster", "cluster.html", cluster.gather)),
        Route("/console/live/cluster", live("cluster_live.html", cluster.gather, 5.0)),
        Route("/console/topics", page("topics", "topics.html", topics.gather)),
        Route("/console/topics/{topic}", page("topics", "topic.html", topics.gather_partitions)),
        Route(
            "/console/topics/{topic}/messages",
            page("topics", "messages.html", messages.gather),
        ),
        Route("/console/topics/{topic}/messages/live", pages.tail),
        Route(
            "/console/topics/{topic}/settings",
            page("topics", "topic_settings.html", topics.gather_settings),
        ),
        Route(
            "/console/topics/{topic}/groups",
            page("topics", "topic_groups.html", topics.gather_groups),
        ),
        Route(
            "/console/topics/{topic}/producers",
            page("topics", "topic_producers.html", transactions.gather_producers),
        ),
        Route(
            "/console/topics/{topic}/segments",
            page("topics", "topic_segments.html", inside.gather_segments),
        ),
        Route("/console/groups", page("groups", "groups.html", groups.gather)),
        Route("/console/group", page("groups", "group.html", groups.gather_group)),
        Route("/console/live/group", live("group_live.html", groups.gather_group)),
        Route(
            "/console/transactions", page("transactions", "transactions.html", transactions.gather)
        ),
        Route("/console/explain", page("explain", "explain.html", explaining.gather)),
        Route(
            "/console/connections",
            page("connections", "connections.html", inside.gather_connections),
        ),
        Route("/console/tree", page("tree", "tree.html", inside.gather_tree)),
        Route("/console/log", page("log", "log.html", inside.gather_log)),
        Route("/console/live/log", live("log_live.html", inside.gather_log)),
        Route("/console/static/{name}", pages.static),
    ]
    if write_token:
        from .writes import ConsoleForms

        console.write_allowed = True
        routes += ConsoleForms(pages, write_token).routes()
    handlers = {404: pages.missing, PageRefused: pages.not_done}
    return Door(Starlette(routes=routes, exception_handlers=handlers))
