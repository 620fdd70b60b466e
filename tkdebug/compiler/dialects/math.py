"""MLIR's math dialect: functions applied element by element."""

from __future__ import annotations

from typing import ClassVar

from tkdebug.compiler.dialects.interfaces import OneResult
from tkdebug.compiler.ir.op_view import FLOATS, NUMBERS, operand_def


class Unary(OneResult):
    """A function of one tile."""

    source = operand_def(NUMBERS)


class FloatFunction(Unary):
    """A function of fp32 or fp64; its docstring documents the function of `tl`, too.

    Attributes:
        function: what `tl` calls it.
    """

    function: ClassVar[str]


class Exp(FloatFunction):
    """e to the x, elementwise, fp32 or fp64."""

    name = "math.exp"
    function = "exp"


class Exp2(FloatFunction):
    """2 to the x, elementwise, fp32 or fp64."""

    name = "math.exp2"
    function = "exp2"


class Log(FloatFunction):
    """Natural logarithm, elementwise, fp32 or fp64."""

    name = "math.log"
    function = "log"


class Log2(FloatFunction):
    """Base-2 logarithm, elementwise, fp32 or fp64."""

    name = "math.log2"
    function = "log2"


class Sqrt(FloatFunction):
    """Square root (approximate on the GPU), fp32 or fp64."""

    name = "math.sqrt"
    function = "sqrt"


class Rsqrt(FloatFunction):
    """One over the square root, fp32 or fp64."""

    name = "math.rsqrt"
    function = "rsqrt"


class Sin(FloatFunction):
    """Sine of radians, fp32 or fp64."""

    name = "math.sin"
    function = "sin"


class Cos(FloatFunction):
    """Cosine of radians, fp32 or fp64."""

    name = "math.cos"
    function = "cos"


class Erf(FloatFunction):
    """Error function, fp32 or fp64."""

    name = "math.erf"
    function = "erf"


class Floor(FloatFunction):
    """Largest integer not above x, fp32 or fp64."""

    name = "math.floor"
    function = "floor"


class Ceil(FloatFunction):
    """Smallest integer not below x, fp32 or fp64."""

    name = "math.ceil"
    function = "ceil"


class AbsF(Unary):
    """Absolute value of a float."""

    name = "math.absf"


class AbsI(Unary):
    """Absolute value of an integer."""

    name = "math.absi"


class Fma(OneResult):
    """a * b + c, rounded once."""

    name = "math.fma"
    a = operand_def(FLOATS)
    b = operand_def(FLOATS)
    c = operand_def(FLOATS)
