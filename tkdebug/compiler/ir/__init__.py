"""The IR core: operations, values, blocks, regions, types and locations, in MLIR's vocabulary."""

from tkdebug.compiler.ir.builder import Builder
from tkdebug.compiler.ir.core import Block, Module, Operation, Region, Value
from tkdebug.compiler.ir.location import Location, SourceLocation, fuse
from tkdebug.compiler.ir.types import (
    DescriptorType,
    MemDescType,
    PointerType,
    ScalarType,
    TensorType,
    TokenType,
    Type,
)

__all__ = [
    "Block",
    "Builder",
    "DescriptorType",
    "Location",
    "MemDescType",
    "Module",
    "Operation",
    "PointerType",
    "Region",
    "ScalarType",
    "SourceLocation",
    "TensorType",
    "TokenType",
    "Type",
    "Value",
    "fuse",
]
