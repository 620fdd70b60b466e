"""MLIR's math dialect: functions applied element by element."""

from __future__ import annotations

from typing import ClassVar

from tkdebug.compiler.dialects.interfaces import Elementwise, FloatOp, LikeFirst, expect_kind
from tkdebug.compiler.ir.op_view import FLOATS, INTEGERS, NUMBERS, operand_def


class FloatFunction(FloatOp):
    """A function of fp32 or fp64 in the language; the class's docstring documents that, too.

    Such a function is one class and nothing else. The class names the functions that compute it;
    where no name does, it has a rule in `interpreter/rules.py` or in `lowering/math.py`.

    Attributes:
        function: its name in `tl` and `tl.math`.
        libdevice: the function of libdevice that computes it natively, without the `f` of fp32;
            "" if a rule of the lowering does.
        reduces_range: whether its code has a slow path, for operands of many periods.
    """

    function: ClassVar[str]
    libdevice: ClassVar[str] = ""
    reduces_range: ClassVar[bool] = False
    makes_inf = True
    source = operand_def(NUMBERS)


class Exponential(FloatFunction):
    """e, or another number, to the x."""

    makes_nan = False


class Exp(Exponential):
    """e to the x, elementwise, fp32 or fp64."""

    name = "math.exp"
    function = torch = "exp"


class Exp2(Exponential):
    """2 to the x, elementwise, fp32 or fp64."""

    name = "math.exp2"
    function = torch = "exp2"


class Logarithm(FloatFunction):
    """A logarithm, to any base."""


class Log(Logarithm):
    """Natural logarithm, elementwise, fp32 or fp64."""

    name = "math.log"
    function = torch = libdevice = "log"


class Log2(Logarithm):
    """Base-2 logarithm, elementwise, fp32 or fp64."""

    name = "math.log2"
    function = torch = libdevice = "log2"


class Sqrt(FloatFunction):
    """Square root (approximate on the GPU), fp32 or fp64."""

    name = "math.sqrt"
    function = "sqrt"
    makes_inf = False


class Rsqrt(FloatFunction):
    """One over the square root, fp32 or fp64."""

    name = "math.rsqrt"
    function = torch = "rsqrt"


class Sin(FloatFunction):
    """Sine of radians, fp32 or fp64."""

    name = "math.sin"
    function = torch = libdevice = "sin"
    reduces_range = True
    makes_inf = False


class Cos(FloatFunction):
    """Cosine of radians, fp32 or fp64."""

    name = "math.cos"
    function = torch = libdevice = "cos"
    reduces_range = True
    makes_inf = False


class Erf(FloatFunction):
    """Error function, fp32 or fp64."""

    name = "math.erf"
    function = torch = libdevice = "erf"
    makes_inf = makes_nan = False


class Floor(FloatFunction):
    """Largest integer not above x, fp32 or fp64."""

    name = "math.floor"
    function = torch = "floor"
    makes_inf = makes_nan = False


class Ceil(FloatFunction):
    """Smallest integer not below x, fp32 or fp64."""

    name = "math.ceil"
    function = torch = "ceil"
    makes_inf = makes_nan = False


class AbsF(FloatOp):
    """Absolute value of a float."""

    name = "math.absf"
    makes_nan = False
    source = operand_def(NUMBERS)


class AbsI(Elementwise, LikeFirst):
    """Absolute value of an integer."""

    name = "math.absi"
    source = operand_def(NUMBERS)

    def verify(self) -> None:
        """Check that the operand is of integers."""
        expect_kind(self.op, self.source.type, INTEGERS)


class Fma(FloatOp):
    """a * b + c, rounded once."""

    name = "math.fma"
    makes_inf = True
    a = operand_def(FLOATS)
    b = operand_def(FLOATS)
    c = operand_def(FLOATS)
