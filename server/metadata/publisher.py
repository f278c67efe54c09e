"""Passes each new image to its listeners in this broker."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

from .image import MetadataImage

#: Called with the previous image and the new one; `new.changes_since(old)` gives the differences.
ImageListener: TypeAlias = Callable[[MetadataImage, MetadataImage], None]


class MetadataPublisher:
    """Holds the current image; listeners receive each image in the order of their subscription.

    A listener is a plain function on the event loop. When `publish` returns, every listener has processed the image, so
    requests that wait for a new topic can be answered.
    """

    def __init__(self) -> None:
        self._image = MetadataImage()
        self._listeners: list[ImageListener] = []

    @property
    def image(self) -> MetadataImage:
        """The current image."""
        return self._image

    def current(self) -> MetadataImage:
        """The current image, as a function to pass on."""
        return self._image

    def live_brokers(self) -> Collection[int]:
        """The ids of the brokers that are alive, as a function to pass on."""
        return self._image.brokers

    def subscribe(self, *listeners: ImageListener) -> None:
        """Call listeners with every image from the next one on, in this order."""
        self._listeners.extend(listeners)

    def publish(self, image: MetadataImage) -> None:
        """Make `image` the current one and call all listeners; the same image again calls none.

        Errors: the first exception of a listener, after all have been called.
        """
        before, self._image = self._image, image
        if image is before:
            return
        failure: Exception | None = None
        for listener in self._listeners:
            try:
                listener(before, image)
            except Exception as error:  # noqa: BLE001 - its failure must not stop the others
                failure = failure or error
        if failure is not None:
            raise failure
