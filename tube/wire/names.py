"""What names are legal: the checks that the original master and broker make.

Source: spec section 2.8, identifier limits.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from tube.errors import BadRequestError
from tube.limits import (
    CLIENT_ID_CHARS_MAX,
    FILTER_CHARS_MAX,
    FILTERS_PER_TOPIC_MAX,
    GROUP_NAME_CHARS_MAX,
    HOST_NAME_CHARS_MAX,
    TOPIC_NAME_CHARS_MAX,
    TOPICS_PER_CLIENT_MAX,
    USER_NAME_CHARS_MAX,
)
from tube.values import ClientId, GroupName

_TOPIC = re.compile(r"[a-zA-Z]\w+", re.ASCII)
_GROUP = re.compile(r"[a-zA-Z][\w-]+", re.ASCII)
_FILTER = re.compile(r"[_A-Za-z0-9]+")


def check_topic(name: str) -> str:
    """Return the name of a topic that clients may use.

    Raises:
        BadRequestError: not a letter followed by at least one letter, digit or ``_``, or too long.
    """
    return _matching(_TOPIC, name, "topic", TOPIC_NAME_CHARS_MAX)


def check_topics(names: Collection[str]) -> None:
    """Check the topics of one client, and how many they are.

    Raises:
        BadRequestError: see ``check_topic``, or too many.
    """
    if len(names) > TOPICS_PER_CLIENT_MAX:
        raise BadRequestError(f"{len(names)} topics, limit is {TOPICS_PER_CLIENT_MAX}")
    for name in names:
        check_topic(name)


def check_group(name: str) -> GroupName:
    """Return the name of a consumer group.

    Raises:
        BadRequestError: not a letter followed by at least one letter, digit, ``_`` or ``-``, or too
            long.
    """
    return GroupName(_matching(_GROUP, name, "group", GROUP_NAME_CHARS_MAX))


def check_client_id(client_id: str) -> ClientId:
    """Return the id of a client; every implementation has its own form, so it is opaque.

    Raises:
        BadRequestError: blank or too long.
    """
    return ClientId(_not_blank(client_id, "client id", CLIENT_ID_CHARS_MAX))


def check_host(host: str) -> str:
    """Return the host that a client names as its own; Go puts the master's address here.

    Raises:
        BadRequestError: blank or too long.
    """
    return _not_blank(host, "host name", HOST_NAME_CHARS_MAX)


def check_user(name: str) -> str:
    """Return the name of a user.

    Raises:
        BadRequestError: blank or too long.
    """
    return _not_blank(name, "user name", USER_NAME_CHARS_MAX)


def check_filter(item: str) -> str:
    """Return a filter item: a message type that a consumer wants.

    Raises:
        BadRequestError: not letters, digits and ``_``, or too long.
    """
    return _matching(_FILTER, item, "filter", FILTER_CHARS_MAX)


def check_filters(items: Collection[str]) -> None:
    """Check the filter items of one topic, and how many they are.

    Raises:
        BadRequestError: see ``check_filter``, or too many.
    """
    if len(items) > FILTERS_PER_TOPIC_MAX:
        raise BadRequestError(f"{len(items)} filters, limit is {FILTERS_PER_TOPIC_MAX}")
    for item in items:
        check_filter(item)


def _matching(pattern: re.Pattern[str], text: str, what: str, chars_max: int) -> str:
    _not_blank(text, what, chars_max)
    if not pattern.fullmatch(text):
        raise BadRequestError(f"{what} {text!r} does not match {pattern.pattern}")
    return text


def _not_blank(text: str, what: str, chars_max: int) -> str:
    """Length first, so that no pattern runs over a megabyte; ``bytes`` come from bad UTF-8."""
    if not isinstance(text, str):
        raise BadRequestError(f"{what} is not UTF-8")
    if len(text) > chars_max:
        raise BadRequestError(
            f"{what} {text[:40]!r}... has {len(text)} characters, limit is {chars_max}"
        )
    if not text.strip():
        raise BadRequestError(f"{what} is blank")
    return text
