"""The SDK.  ``from tube.client import Client`` is the blocking one; ``tube.client.aio`` and
``tube.client.twisted`` have the same names for asyncio and Twisted.
"""

from tube.client.blocking import Client, Consumer, Producer
from tube.client.options import ClientOptions, ConsumerOptions, ProducerOptions
from tube.client.values import Message, Outgoing, Receipt

__all__ = [
    "Client",
    "ClientOptions",
    "Consumer",
    "ConsumerOptions",
    "Message",
    "Outgoing",
    "Producer",
    "ProducerOptions",
    "Receipt",
]
