"""MLIR's math dialect: functions applied element by element."""

from __future__ import annotations

from tkdebug.compiler.dialects.interfaces import OneResult
from tkdebug.compiler.ir.op_view import FLOATS, NUMBERS, operand_def


class Unary(OneResult):
    """A function of one tile."""

    source = operand_def(NUMBERS)


class Exp(Unary):
    """e to the x."""

    name = "math.exp"


class Exp2(Unary):
    """2 to the x."""

    name = "math.exp2"


class Log(Unary):
    """Natural logarithm."""

    name = "math.log"


class Log2(Unary):
    """Base-2 logarithm."""

    name = "math.log2"


class Sqrt(Unary):
    """Square root."""

    name = "math.sqrt"


class Rsqrt(Unary):
    """One over the square root."""

    name = "math.rsqrt"


class Sin(Unary):
    """Sine of radians."""

    name = "math.sin"


class Cos(Unary):
    """Cosine of radians."""

    name = "math.cos"


class Erf(Unary):
    """Error function."""

    name = "math.erf"


class Floor(Unary):
    """Largest integer not above."""

    name = "math.floor"


class Ceil(Unary):
    """Smallest integer not below."""

    name = "math.ceil"


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
