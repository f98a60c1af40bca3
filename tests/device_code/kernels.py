# SPDX-License-Identifier: Apache-2.0
"""Kernels as compilers leave them: what they take of a chip, and what their names say about them."""
import dataclasses
import re

ELEMENT_BYTES = {"double": 8, "float": 4, "bf16": 2, "fp16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1}


@dataclasses.dataclass(frozen=True)
class Chip:
    """What the threads of one kernel share: of a multiprocessor (NVIDIA), or of one of its vector units (AMD)."""
    counts: str  # what is counted there: teams or waves, as the vendor's launch bounds do
    registers: int  # for each lane
    granule: int  # registers are given out by so many
    most_waves: int
    parts: int = 1  # with registers of their own


CHIPS = {
    "sm_80": Chip("teams", 512, 8, 16, 4),
    "sm_90a": Chip("teams", 512, 8, 16, 4),
    "gfx90a": Chip("waves", 512, 8, 8),
    "gfx942": Chip("waves", 512, 8, 8),
    "gfx1100": Chip("waves", 1536, 24, 16),
}


@dataclasses.dataclass(frozen=True)
class Functor:
    """A kernel's struct, from its name: `HeldRowsKernel<float, 8, 32, 2, Chain<Load<bf16>, Store<bf16>>>`."""
    struct: str
    arguments: tuple  # of Functors and words

    @staticmethod
    def parse(text):
        text = text.strip()
        cut = text.find("<")
        if cut < 0 or not text.endswith(">"):
            return Functor(re.sub(r"(\w+|\(anonymous namespace\))::", "", text), ())
        name = Functor.parse(text[:cut]).struct
        return Functor(name, tuple(Functor.parse(part) for part in split_list(text[cut + 1:-1])))

    def __iter__(self):
        """This, and all that its arguments name."""
        yield self
        for argument in self.arguments:
            yield from argument

    @property
    def stages(self):
        """Of its chain, or chains; None if it has none."""
        chains = [part.arguments for part in self.arguments if part.struct == "Chain"]
        return sum(chains, ()) if chains else None

    @property
    def elements(self):
        """The element types it works on. (A chain's executor also names the type in which it computes.)"""
        named = self.arguments if self.stages is None else self.stages
        return list(dict.fromkeys(part.struct for argument in named for part in argument
                                  if part.struct in ELEMENT_BYTES))

    @property
    def numbers(self):
        """Its own numeric parameters, those of what multiplies pieces, and how it accesses memory."""
        pieces = [argument for part in self.arguments if part.struct.endswith("Pieces") for argument in part.arguments]
        words = [part.struct for part in (*pieces, *self.arguments)]
        names = {"(Access)0": "wide", "(Access)1": "single"}
        return [names.get(word, word.rstrip("u")) for word in words if word in names or re.fullmatch(r"-?\d+u?", word)]

    @property
    def short_name(self):
        name = f"{self.struct}<{', '.join(self.elements + self.numbers)}>"
        return name if self.stages is None else f"{name} of {len(self.stages)} stages"

    def __str__(self):
        return self.struct + (f"<{', '.join(map(str, self.arguments))}>" if self.arguments else "")

    @property
    def reads_values(self):
        """Does one of its stages read values by row and column, and not only what belongs to a row?"""
        return self.stages is None or any(part.struct.startswith(("Load", "Gather", "Rotate"))
                                          for stage in self.stages for part in stage)

    @property
    def writes_values(self):
        """Does one of its stages write values, and not only what a row has come to?"""
        if self.struct == "FewRowsKernel":  # one by one, as they are few
            return False
        return any(part.struct.startswith("Store") for stage in self.stages or () for part in stage)

    @property
    def is_wide(self):
        """Does it promise accesses of 16 bytes? Only where a pack of the narrowest element has as many."""
        # Rows in registers are always wide.
        if self.struct not in ("HeldRowsKernel", "KeptRowsKernel") and "wide" not in self.numbers:
            return False
        if self.struct == "FewRowsKernel":  # of the weight it is always 16 bytes
            return True
        width = next((int(word) for word in self.numbers if word.isdigit()), 0) if self.stages else 16
        return all(ELEMENT_BYTES[element] * width >= 16 for element in self.elements)

    @property
    def uses_fragments(self):
        """Is it written over a backend's matrix instructions?"""
        return any(re.fullmatch(r"\w*(MatrixUnit|MfmaUnit|WmmaUnit|Fragment)", part.struct) for part in self)


def split_list(text):
    """The parts between the commas that no bracket encloses."""
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        if letter in "<(":
            depth += 1
        elif letter in ">)":
            depth -= 1
        elif letter == "," and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    return parts + [text[begin:]] if text.strip() else []


def enclosed(text, opening):
    """What stands between `opening`, which ends in <, and its closing bracket; None if it is not there."""
    begin = text.find(opening)
    if begin < 0:
        return None
    begin += len(opening)
    depth = 1
    for i in range(begin, len(text)):
        depth += {"<": 1, ">": -1}.get(text[i], 0)
        if depth == 0:
            return text[begin:i]
    return None


def functor_of(name):
    """The struct that a kernel with this demangled name runs; None for kernels of Kokkos itself."""
    for opening in ("Kokkos::Impl::ParallelFor<", "team_kernel<"):
        if (inside := enclosed(name, opening)) is not None:
            functor = split_list(inside)[0].strip()
            return None if functor.startswith("Kokkos::") else Functor.parse(functor)
    return None


def launch_bounds(name):
    """(threads of a team, teams or waves that shall fit at once), or None."""
    if (inside := enclosed(name, "team_kernel<")) is not None:
        words = split_list(inside)[1:]
    elif (inside := enclosed(name, "Kokkos::LaunchBounds<")) is not None:
        words = split_list(inside)
    else:
        return None
    return tuple(int(word.strip(" u")) for word in words)


@dataclasses.dataclass(frozen=True)
class Kernel:
    operator: str
    target: str
    functor: Functor
    bounds: tuple  # or None
    registers: int
    spills: int  # vector registers kept in memory, where the compiler counts them
    scalar_spills: int  # scalar registers kept in lanes of vector registers: no memory is touched
    stack: int  # bytes of each thread
    shared: int  # bytes of each team, known to the compiler
    argument: int  # bytes: the struct, and what launching it adds
    wave: int
    wide_loads: int  # instructions that move 16 bytes from global memory
    wide_stores: int
    matrix: int
    instructions: int

    @property
    def name(self):
        return f"{self.operator} {self.functor.short_name}"

    @property
    def occupancy(self):
        """How many teams or waves fit, by registers and by nothing else; None if the code does not tell."""
        chip = CHIPS[self.target]
        taken = max(1, -(-self.registers // chip.granule)) * chip.granule
        waves = min(chip.registers // taken, chip.most_waves) * chip.parts
        if chip.counts == "waves":
            return waves
        return min(waves // -(-self.bounds[0] // self.wave), 32) if self.bounds else None
