"""`LinearLayout`: where each element of a tensor lives, as a linear map over F2.

A layout sends hardware indices (register, lane, warp, block, or an offset in shared memory) to
tensor coordinates (dim0, dim1, ...). All sizes are powers of two, the map is linear over the bits
of its inputs, and so it is given by the contribution of each input bit: its *basis vector*. The
contributions of the set bits are XORed ("Linear Layouts: Robust Code Generation of Efficient
Tensor Computation Using F2", arXiv:2505.23819).

Responsible for the algebra alone; which layouts the hardware wants is in `distributed` and
`shared`. Invariant: a layout never changes, and equal layouts have equal hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tkdebug.compiler.layouts import f2
from tkdebug.errors import TkError

REGISTER = "register"
LANE = "lane"
WARP = "warp"
BLOCK = "block"
OFFSET = "offset"


class LayoutError(TkError):
    """A layout that cannot be built, or an operation that this layout does not allow."""


def bits_of(size: int, what: str) -> int:
    """Log2 of `size`.

    Args:
        size: a power of two.
        what: its name in the error.

    Raises:
        LayoutError: `size` is not a power of two.
    """
    if size < 1 or size & (size - 1):
        raise LayoutError(f"{what} is {size}; layouts need a power of two")
    return size.bit_length() - 1


def dim_names(rank: int) -> tuple[str, ...]:
    """("dim0", "dim1", ...): the names of a tensor's dimensions."""
    return tuple(f"dim{i}" for i in range(rank))


# No slots: the cached properties below live in the instance's dictionary.
@dataclass(frozen=True)
class LinearLayout:
    """A linear map over F2 between named, power-of-two sized index spaces.

    Inputs and outputs are packed into one integer with the first dimension in the low bits. Build
    with `LinearLayout.of`, `identity` and `zeros`, and combine with `*` (direct sum).

    Args:
        ins: (input dimension, packed basis vector of each of its bits), first dimension lowest.
        outs: (output dimension, size), first dimension lowest.
    """

    ins: tuple[tuple[str, tuple[int, ...]], ...]
    outs: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        for kind, names in (("input", self.in_dims), ("output", self.out_dims)):
            if len(set(names)) != len(names):
                raise LayoutError(f"{kind} dimensions {', '.join(names)} are not distinct")
        total_bits = sum(bits_of(size, f"the size of {name}") for name, size in self.outs)
        for name, vectors in self.ins:
            for vector in vectors:
                if not 0 <= vector < 1 << total_bits:
                    raise LayoutError(
                        f"basis vector {vector} of {name} needs to lie in [0, {1 << total_bits})"
                    )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Types hold layouts and are hashed and compared all the time.
        return hash((self.ins, self.outs))

    @staticmethod
    def of(bases: Mapping[str, Sequence[Sequence[int]]], outs: Mapping[str, int]) -> LinearLayout:
        """The layout whose input bit i of `name` contributes the coordinates `bases[name][i]`.

        Args:
            bases: for each input dimension the coordinates of its bits, in the order of `outs`.
            outs: size of each output dimension, in elements.

        Raises:
            LayoutError: a size is no power of two, or a coordinate lies outside its dimension.
        """
        sizes = tuple(outs.items())
        ins = []
        for name, vectors in bases.items():
            packed = []
            for vector in vectors:
                if len(vector) != len(sizes):
                    raise LayoutError(
                        f"basis {tuple(vector)} of {name}: expected {len(sizes)} coordinates"
                    )
                packed.append(_pack(dict(zip(outs, vector, strict=True)), sizes))
            ins.append((name, tuple(packed)))
        return LinearLayout(tuple(ins), sizes)

    @staticmethod
    def identity(size: int, in_dim: str, out_dim: str) -> LinearLayout:
        """`in_dim` index i -> `out_dim` coordinate i, for i in [0, size)."""
        bits = bits_of(size, f"the size of {in_dim}")
        return LinearLayout(((in_dim, tuple(1 << i for i in range(bits))),), ((out_dim, size),))

    @staticmethod
    def zeros(size: int, in_dim: str, out_dim: str) -> LinearLayout:
        """Every index of `in_dim` in [0, size) -> coordinate 0 of `out_dim`, which has size 1."""
        return LinearLayout(((in_dim, (0,) * bits_of(size, in_dim)),), ((out_dim, 1),))

    @staticmethod
    def empty(ins: Sequence[str], outs: Sequence[str]) -> LinearLayout:
        """All dimensions of size 1; fixes their order for the products that follow."""
        return LinearLayout(tuple((d, ()) for d in ins), tuple((d, 1) for d in outs))

    # Sizes and bases.

    @cached_property
    def in_dims(self) -> tuple[str, ...]:
        """Names of the input dimensions, lowest bits first."""
        return tuple(name for name, _ in self.ins)

    @cached_property
    def out_dims(self) -> tuple[str, ...]:
        """Names of the output dimensions, lowest bits first."""
        return tuple(name for name, _ in self.outs)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the output dimensions, in elements."""
        return tuple(size for _, size in self.outs)

    @cached_property
    def in_sizes(self) -> tuple[tuple[str, int], ...]:
        """(input dimension, size) in order."""
        return tuple((name, 1 << len(vectors)) for name, vectors in self.ins)

    def in_bits(self, dim: str) -> int:
        """Number of bits of input `dim`; 0 when the layout does not have it."""
        return len(self.packed_bases(dim))

    def in_size(self, dim: str) -> int:
        """Number of indices of input `dim`; 1 when the layout does not have it."""
        return 1 << self.in_bits(dim)

    def out_size(self, dim: str) -> int:
        """Number of coordinates of output `dim`, in elements."""
        for name, size in self.outs:
            if name == dim:
                return size
        raise LayoutError(f"no output {dim}; the layout has {', '.join(self.out_dims)}")

    def packed_bases(self, dim: str) -> tuple[int, ...]:
        """Packed basis vectors of input `dim`; () when the layout does not have it."""
        for name, vectors in self.ins:
            if name == dim:
                return vectors
        return ()

    def bases(self, dim: str) -> tuple[tuple[int, ...], ...]:
        """Coordinates that each bit of input `dim` contributes, in the order of `out_dims`."""
        return tuple(tuple(self.unpack_out(v).values()) for v in self.packed_bases(dim))

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The matrix of the map: the packed basis vector of every packed input bit."""
        return tuple(vector for _, vectors in self.ins for vector in vectors)

    @property
    def out_bits(self) -> int:
        """Number of bits of a packed output."""
        return sum(size.bit_length() - 1 for _, size in self.outs)

    @cached_property
    def _span(self) -> f2.Span:
        return f2.Span(self.columns)

    # The map itself.

    def pack_in(self, indices: Mapping[str, int]) -> int:
        """Packs hardware indices; dimensions that are not given are 0."""
        return _pack(indices, self.in_sizes)

    def unpack_in(self, packed: int) -> dict[str, int]:
        """The index in each input dimension of a packed input."""
        return dict(_unpack(packed, self.in_sizes))

    def pack_out(self, coordinates: Mapping[str, int]) -> int:
        """Packs coordinates; dimensions that are not given are 0."""
        return _pack(coordinates, self.outs)

    def unpack_out(self, packed: int) -> dict[str, int]:
        """The coordinate in each output dimension of a packed output."""
        return dict(_unpack(packed, self.outs))

    def apply(self, indices: Mapping[str, int]) -> dict[str, int]:
        """Coordinates of the element at `indices`; dimensions that are not given are 0.

        Raises:
            LayoutError: an index is out of range, or names a dimension the layout does not have.
        """
        return self.unpack_out(f2.combine(self.columns, self.pack_in(indices)))

    @cached_property
    def table(self) -> tuple[int, ...]:
        """Packed output of every packed input."""
        return f2.spanned(self.columns)

    # Combining layouts.

    def __mul__(self, outer: LinearLayout) -> LinearLayout:
        """Direct sum: `outer`'s bits go above this layout's in every dimension that both have.

        So `tile * reps` repeats `tile` (arXiv:2505.23819, product).
        """
        own, other = dict(self.outs), dict(outer.outs)
        outs = {d: own.get(d, 1) * other.get(d, 1) for d in dict.fromkeys((*own, *other))}
        sizes = tuple(outs.items())
        in_dims = dict.fromkeys((*self.in_dims, *outer.in_dims))
        ins = []
        for name in in_dims:
            low = [_pack(self.unpack_out(v), sizes) for v in self.packed_bases(name)]
            high = [
                _pack({d: x * own.get(d, 1) for d, x in outer.unpack_out(v).items()}, sizes)
                for v in outer.packed_bases(name)
            ]
            ins.append((name, (*low, *high)))
        return LinearLayout(tuple(ins), sizes)

    def quotient(self, tile: LinearLayout) -> LinearLayout | None:
        """The layout `rest` with `tile * rest == self`, or None when `tile` does not divide it.

        Dimensions keep this layout's order; those used up remain with size 1.
        """
        tile_outs = dict(tile.outs)
        if not set(tile.in_dims) <= set(self.in_dims) or not set(tile_outs) <= set(self.out_dims):
            return None
        if any(tile_outs.get(d, 1) > size for d, size in self.outs):
            return None
        outs = tuple((d, size // tile_outs.get(d, 1)) for d, size in self.outs)
        ins = []
        for name, vectors in self.ins:
            taken = tile.packed_bases(name)
            low = tuple(self.pack_out(tile.unpack_out(v)) for v in taken)
            if vectors[: len(taken)] != low:
                return None
            rest = [self.unpack_out(v) for v in vectors[len(taken) :]]
            if any(x % tile_outs.get(d, 1) for vector in rest for d, x in vector.items()):
                return None
            shifted = [{d: x // tile_outs.get(d, 1) for d, x in vector.items()} for vector in rest]
            ins.append((name, tuple(_pack(vector, outs) for vector in shifted)))
        return LinearLayout(tuple(ins), outs)

    def compose(self, outer: LinearLayout) -> LinearLayout:
        """The map x -> outer(self(x)); `outer`'s inputs are this layout's outputs, by name.

        Raises:
            LayoutError: the dimensions differ, or `outer` is too small for this layout's outputs.
        """
        if set(self.out_dims) != set(outer.in_dims):
            raise LayoutError(
                f"compose: outputs {', '.join(self.out_dims)} against inputs "
                f"{', '.join(outer.in_dims)}; expected the same dimensions"
            )
        for name, size in self.outs:
            if size > outer.in_size(name):
                raise LayoutError(f"compose: {name} has {size} > {outer.in_size(name)} indices")
        return self._map_vectors(
            lambda v: f2.combine(outer.columns, outer.pack_in(self.unpack_out(v))), outer.outs
        )

    def inverse(self) -> LinearLayout:
        """The inverse map, outputs -> inputs.

        Raises:
            LayoutError: the layout is no permutation.
        """
        if not self.is_permutation:
            raise LayoutError("inverse: the layout is no permutation; use pseudo_inverse")
        return self.pseudo_inverse()

    def pseudo_inverse(self) -> LinearLayout:
        """A right inverse: `self.pseudo_inverse().compose(self)` is the identity.

        Of the inputs that hold an element it names the one whose free bits are 0.

        Raises:
            LayoutError: some coordinate is held by no input.
        """
        if not self.is_surjective:
            raise LayoutError("pseudo_inverse: the layout does not reach every coordinate")
        ins = []
        for name, size in self.outs:
            units = [self.pack_out({name: 1 << i}) for i in range(size.bit_length() - 1)]
            ins.append((name, tuple(self.solve(unit) for unit in units)))
        return LinearLayout(tuple(ins), self.in_sizes)

    def invert_and_compose(self, other: LinearLayout) -> LinearLayout:
        """A map g from this layout's inputs to `other`'s with `other(g(x)) == self(x)`.

        Of several inputs of `other` that hold an element, g names the one whose free bits are 0.

        Raises:
            LayoutError: the outputs differ, or `other` does not hold every element of this layout.
        """
        aligned = self.transpose_outs(other.out_dims)
        if aligned.outs != other.outs:
            raise LayoutError(f"shapes {aligned.outs} and {other.outs} differ")
        ins = tuple((d, tuple(map(other.solve, vectors))) for d, vectors in aligned.ins)
        return LinearLayout(ins, other.in_sizes)

    def solve(self, vector: int) -> int:
        """The packed input, free bits 0, that holds the packed output `vector`.

        Raises:
            LayoutError: no input holds it.
        """
        found = self._span.solve(vector)
        if found is None:
            raise LayoutError(f"no input of the layout holds {self.unpack_out(vector)}")
        return found

    # Other views of the same map.

    def transpose_outs(self, order: Sequence[str]) -> LinearLayout:
        """This map with its output dimensions listed in `order`."""
        if sorted(order) != sorted(self.out_dims):
            raise LayoutError(
                f"transpose_outs: got {', '.join(order)}, expected the dimensions "
                f"{', '.join(self.out_dims)} in some order"
            )
        outs = tuple((name, self.out_size(name)) for name in order)
        return self._map_vectors(lambda v: _pack(self.unpack_out(v), outs), outs)

    def rename_outs(self, names: Mapping[str, str]) -> LinearLayout:
        """This map with output dimensions renamed; those not in `names` keep theirs."""
        return LinearLayout(self.ins, tuple((names.get(d, d), size) for d, size in self.outs))

    def reshape_outs(self, outs: Mapping[str, int]) -> LinearLayout:
        """Cuts the packed output into other dimensions; the first takes the low bits.

        `tl.reshape` runs over the last dimension fastest: see `views.reshape`.
        """
        reshaped = LinearLayout((), tuple(outs.items()))
        if reshaped.out_bits != self.out_bits:
            raise LayoutError(f"reshape_outs: {dict(self.outs)} to {dict(outs)}: sizes differ")
        return LinearLayout(self.ins, reshaped.outs)

    def sublayout(self, in_dims: Sequence[str], out_dims: Sequence[str]) -> LinearLayout:
        """The map restricted to `in_dims` (others 0) and read in `out_dims` only."""
        outs = tuple((name, self.out_size(name)) for name in out_dims)
        kept = LinearLayout(tuple((d, self.packed_bases(d)) for d in in_dims), self.outs)

        def read(vector: int) -> int:
            coordinates = self.unpack_out(vector)
            return _pack({name: coordinates[name] for name in out_dims}, outs)

        return kept._map_vectors(read, outs)

    def without_zero_bases(self, dim: str) -> LinearLayout:
        """Drops the bits of input `dim` that contribute nothing (broadcast copies)."""
        return LinearLayout(
            tuple((d, tuple(v for v in vs if v) if d == dim else vs) for d, vs in self.ins),
            self.outs,
        )

    def _map_vectors(
        self, convert: Callable[[int], int], outs: tuple[tuple[str, int], ...]
    ) -> LinearLayout:
        return LinearLayout(tuple((d, tuple(map(convert, vs))) for d, vs in self.ins), outs)

    # Properties.

    @property
    def is_surjective(self) -> bool:
        """Whether every coordinate is held by some input."""
        return self._span.rank == self.out_bits

    @property
    def is_injective(self) -> bool:
        """Whether no two inputs hold the same coordinate (nothing is broadcast)."""
        return self._span.rank == len(self.columns)

    @property
    def is_permutation(self) -> bool:
        """Whether the layout is a bijection between inputs and coordinates."""
        return self.is_surjective and self.is_injective

    @cached_property
    def free_masks(self) -> dict[str, int]:
        """Return the mask of free bits of each input dimension.

        A bit is free when its basis vector depends on those of the bits before it (register
        before lane before warp, low before high): the inputs with all free bits 0 hold every
        element exactly once, the others hold copies.
        """
        span = f2.Span()
        return {
            name: sum(1 << i for i, vector in enumerate(vectors) if not span.add(vector))
            for name, vectors in self.ins
        }

    def consecutive_elements(self, order: Sequence[str]) -> int:
        """The number of consecutive elements in the first registers, aligned everywhere.

        For every setting of the other bits, registers 0..n-1 (and each following group of n) hold
        n elements that follow each other and start at a multiple of n.

        Args:
            order: output dimensions, the one that is contiguous in memory first.
        """
        layout = self.transpose_outs(order)
        vectors = layout.packed_bases(REGISTER)
        others = [v for name, vs in layout.ins if name != REGISTER for v in vs]
        count = 0
        while count < len(vectors) and vectors[count] == 1 << count:
            count += 1
        while any(v & ((1 << count) - 1) for v in (*others, *vectors[count:])):
            count -= 1
        return 1 << count

    def __iter__(self) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
        """Every (indices, coordinates), in the order of the packed input."""
        for packed, out in enumerate(self.table):
            yield self.unpack_in(packed), self.unpack_out(out)

    def __str__(self) -> str:
        lines = []
        for name, _ in self.ins:
            steps = [f"{1 << i} -> {_tuple_text(v)}" for i, v in enumerate(self.bases(name))]
            lines.append(f"{name}: {', '.join(steps) or 'size 1'}")
        lines.append("of " + ", ".join(f"{name}: {size}" for name, size in self.outs))
        return "\n".join(lines)


def _tuple_text(coordinates: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, coordinates))})"


def _pack(indices: Mapping[str, int], sizes: tuple[tuple[str, int], ...]) -> int:
    packed, shift, found = 0, 0, 0
    for name, size in sizes:
        index = indices.get(name)
        if index is not None:
            if not 0 <= index < size:
                raise LayoutError(f"{name} is {index}; expected 0 to {size - 1}")
            found += 1
            packed |= index << shift
        shift += size.bit_length() - 1
    if found != len(indices):
        known = ", ".join(name for name, _ in sizes)
        raise LayoutError(f"got dimensions {', '.join(indices)}; expected some of {known}")
    return packed


def _unpack(packed: int, sizes: tuple[tuple[str, int], ...]) -> Iterator[tuple[str, int]]:
    for name, size in sizes:
        yield name, packed & (size - 1)
        packed >>= size.bit_length() - 1
