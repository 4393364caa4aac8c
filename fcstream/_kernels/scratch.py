"""Small arrays that live as long as the call of a kernel: on the stack, so that no allocator is compiled for them."""

from __future__ import annotations

import math

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array


def scratch(dtype, *shape):  # type: ignore[no-untyped-def]
    """Make a function for kernels that returns an array of this shape, whose entries are not set.

    Each place that calls it has one array, which the next call of that place returns again. It must not be returned.
    """
    kind = types.Array(dtype, len(shape), "C")

    @intrinsic
    def array(typing_context):  # type: ignore[no-untyped-def]
        def codegen(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            made, item = context.make_array(kind)(context, builder), context.get_data_type(dtype)
            number, size = ir.IntType(64), context.get_abi_sizeof(item)
            strides = [math.prod(shape[k + 1 :]) * size for k in range(len(shape))]
            memory = cgutils.alloca_once(builder, item, number(math.prod(shape)))
            memory.align = 64  # so that no vector lies in two cache lines
            populate_array(
                made,
                data=memory,
                shape=[number(length) for length in shape],
                strides=[number(stride) for stride in strides],
                itemsize=number(size),
                meminfo=None,
            )
            return made._getvalue()

        return kind(), codegen

    return array
