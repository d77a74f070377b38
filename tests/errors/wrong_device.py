"""The text alone: raising it takes a machine that the tests cannot count on."""

from stagekit.runtime.errors import ArgumentError, WrongDevice

raise ArgumentError(
    WrongDevice(
        name="x",
        target="cuda",
        received="a float32 array of shape (8,)",
        device="cpu",
        advice="x = sk.cuda.to_device(x)",
    )
)
