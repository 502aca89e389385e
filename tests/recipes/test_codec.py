"""The reference codec by its definitions: nearest values, ties to even, block scales that lose only what they must."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from recipes.codec import E2M1, E4M3, E5M2, Format, decoded, decoded_e8m0, mxfp8, nvfp4, per_tensor, rounded

MATRIX = arrays.arrays(np.float32, (16, 32), elements=st.floats(-1e4, 1e4, width=32))


def test_e2m1_has_the_sixteen_values_of_the_specification() -> None:
    values = decoded(np.arange(16, dtype=np.uint8), E2M1)
    assert values[:8].tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert (values[8:] == -values[:8]).all()


def test_ends_of_the_formats() -> None:
    assert decoded(np.array([0x7E], np.uint8), E4M3)[0] == 448
    assert np.isnan(decoded(np.array([0x7F, 0xFF], np.uint8), E4M3)).all()
    assert decoded(np.array([0x01], np.uint8), E4M3)[0] == 2**-9
    assert decoded(np.array([0x7B], np.uint8), E5M2)[0] == 57344
    assert np.isinf(decoded(np.array([0x7C], np.uint8), E5M2)).all()
    assert decoded_e8m0(np.array([0, 127, 254], np.uint8)).tolist() == [2.0**-127, 1.0, 2.0**127]
    assert np.isnan(decoded_e8m0(np.array([255], np.uint8))).all()


@pytest.mark.parametrize("form", [E4M3, E5M2, E2M1])
def test_values_stay_and_ties_go_to_the_even_mantissa(form: Format) -> None:
    codes = np.arange(form.codes // 2, dtype=np.uint8)
    values = decoded(codes, form)
    values = values[np.isfinite(values)]
    assert (rounded(values, form) == values).all()
    middle = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
    even = np.where(np.arange(len(middle)) % 2 == 0, values[:-1], values[1:])
    assert (rounded(middle, form) == even).all()


@given(arrays.arrays(np.float32, 32, elements=st.floats(-1e5, 1e5, width=32)))
def test_rounding_takes_the_nearest_value(values: np.ndarray) -> None:
    for form in (E4M3, E5M2, E2M1):
        known = decoded(np.arange(form.codes, dtype=np.uint8), form)
        known = known[np.isfinite(known)]
        inside = np.clip(values, -form.largest, form.largest)
        nearest = np.abs(inside[:, None].astype(np.float64) - known).min(axis=1)
        assert (np.abs(inside.astype(np.float64) - rounded(values, form)) == nearest).all()


@given(MATRIX)
def test_mxfp8_saturates_nothing_and_errs_by_half_a_step_at_most(values: np.ndarray) -> None:
    done = mxfp8(values)
    blocks, scales = values.reshape(16, 1, 32), done.scales[..., None]
    assert (np.abs(blocks) <= scales * np.float32(448) * (1 + 1e-6)).all()
    error = np.abs(done.dequantized - values)
    assert (error <= np.maximum(np.abs(values) / 16, scales.reshape(16, 1) * 2**-10) * (1 + 1e-6)).all()


@given(MATRIX, st.booleans())
def test_nvfp4_errs_by_no_more_than_its_coarsest_step(values: np.ndarray, square: bool) -> None:
    done = nvfp4(values, square)
    assert np.isfinite(done.dequantized).all()
    assert set(np.abs(done.data).ravel().tolist()) <= {0, 0.5, 1, 1.5, 2, 3, 4, 6}
    assert done.scales.shape == ((1, 2) if square else (16, 2))
    # the widest gap of E2M1 is 2 of 6, and a block scale may round down by half of E4M3's step
    largest = np.abs(values).max()
    assert (np.abs(done.dequantized - values) <= largest * 0.26 + 1e-30).all()


def test_values_too_small_to_scale_stay_finite() -> None:
    tiny = np.full((16, 32), np.float32(1e-45))
    for done in (mxfp8(tiny), nvfp4(tiny), nvfp4(tiny, square=True), per_tensor(tiny)):
        assert np.isfinite(done.dequantized).all()


def test_all_zeros_stay_zeros() -> None:
    zeros = np.zeros((16, 32), np.float32)
    for done in (mxfp8(zeros), nvfp4(zeros), nvfp4(zeros, square=True), per_tensor(zeros)):
        assert not done.dequantized.any()
