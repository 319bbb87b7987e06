"""Peaks: dense, of the right precision, of a device that is known; or none at all."""

import math

import pytest
import torch

from mlsyslab.measure import DEVICES, Peak, device, find_device, peak, precision_name, this_device, utilization

#: as NVIDIA's driver names them
DRIVER_NAMES = {"NVIDIA H100 80GB HBM3": "H100 SXM", "NVIDIA H100 PCIe": "H100 PCIe", "NVIDIA H100 NVL": "H100 NVL",
                "NVIDIA H200": "H200", "NVIDIA B200": "B200", "NVIDIA A100-SXM4-80GB": "A100 SXM 80GB",
                "NVIDIA A100-SXM4-40GB": "A100 SXM 40GB", "NVIDIA A100 80GB PCIe": "A100 PCIe 80GB",
                "Tesla V100-SXM2-16GB": "V100 SXM2", "Tesla V100-PCIE-32GB": "V100 PCIe", "Tesla T4": "T4"}
DENSE_16_BIT = {"V100 SXM2": 125, "V100 PCIe": 112, "T4": 65, "A100 SXM 40GB": 312, "A100 SXM 80GB": 312,
                "A100 PCIe 80GB": 312, "H100 SXM": 989.4, "H100 PCIe": 756, "H100 NVL": 835, "H200": 989, "B200": 2250}


@pytest.mark.parametrize("name", DRIVER_NAMES)
def test_devices_are_known_by_their_drivers_name(name):
    assert find_device(name).name == DRIVER_NAMES[name]


@pytest.mark.parametrize("name", ["NVIDIA H200 NVL", "NVIDIA GeForce RTX 4090", "NVIDIA GB10", "AMD EPYC", "NVIDIA B2000"])
def test_others_get_no_peak_rather_than_a_neighbours(name):
    assert find_device(name) is None
    with pytest.raises(ValueError, match="its peak isn't known here, so no MFU can be told"):
        device(name)


def test_each_name_fits_one_device_and_each_has_a_source():
    for name in [*DRIVER_NAMES, *(d.name for d in DEVICES)]:
        assert len([d for d in DEVICES if d is find_device(name)]) == 1
    assert all(d.source and d.memory > 0 and d.bandwidth > 0 for d in DEVICES)
    assert all(find_device(d.name) is d for d in DEVICES)


@pytest.mark.parametrize("name", DENSE_16_BIT)
def test_dense_peaks(name):
    precision = "bf16" if "bf16" in device(name).tensor else "fp16"
    assert peak(name, precision).flops == DENSE_16_BIT[name] * 1e12 and not peak(name, precision).sparse


def test_each_halving_of_bits_doubles_a_tensor_cores_peak():
    for d in DEVICES:
        if d.sparsity:
            assert d.tensor["bf16"] == d.tensor["fp16"] == pytest.approx(2 * d.tensor["tf32"], rel=0.03)
        if "fp8" in d.tensor:
            assert d.tensor["fp8"] == pytest.approx(2 * d.tensor["bf16"], rel=0.001)


def test_the_sparse_figure_is_twice_the_dense_and_makes_no_utilization():
    """1,979 TFLOP/s, as the datasheet prints for an H100, halves an MFU if taken for dense."""
    sparse = peak("H100 SXM", "bf16", sparse=True)
    assert sparse.flops == 2 * peak("H100 SXM", "bf16").flops == pytest.approx(1979e12, rel=0.001)
    with pytest.raises(ValueError, match=r"with 2:4 sparsity; .* take the dense peak, 989.4 TFLOP/s"):
        utilization(1e15, 1.0, sparse)


def test_precisions_by_name_and_by_torch_type():
    assert precision_name(torch.bfloat16) == precision_name("bf16") == "bf16"
    assert precision_name(torch.float32) == "fp32" and precision_name(torch.float16) == "fp16"
    assert peak("H100 SXM", torch.float32).flops == 66.9e12  # ordinary cores: TF32 has to be asked for
    assert peak("H100 SXM", "tf32").flops == 494.7e12


def test_utilization_is_a_quotient():
    of = peak("A100 SXM 80GB", "bf16")
    assert utilization(312e12, 2.0, of) == 0.5 == utilization(312e12, 2.0, 312e12)
    assert utilization(312e12 * 8, 2.0, of, devices=8, precision=torch.bfloat16) == 0.5


@pytest.mark.parametrize(("call", "says"), [
    (lambda: peak("V100 SXM2", "bf16"), "it computes in fp32, fp16"),
    (lambda: peak("A100 SXM 80GB", "fp8"), "it computes in fp32, tf32, bf16, fp16"),
    (lambda: peak("TPU v4", "fp32"), "it computes in bf16"),
    (lambda: peak("T4", "int8"), "it is one of fp32, tf32, bf16, fp16, fp8"),
    (lambda: peak("T4", torch.int8), "it is one of fp32, tf32, bf16, fp16, fp8"),
    (lambda: peak("V100 SXM2", "fp16", sparse=True), "don't skip zeros"),
    (lambda: peak("H100 SXM", "fp32", sparse=True), "don't skip zeros"),
    (lambda: peak("H1000", "bf16"), "Known are V100 SXM2"),
    (lambda: utilization(1e12, -1.0, 1e12), r"seconds=-1.0\): seconds is finite and more than 0"),
    (lambda: utilization(1e12, 0.0, 1e12), "seconds is finite and more than 0"),
    (lambda: utilization(1e12, math.nan, 1e12), "seconds is finite"),
    (lambda: utilization(-1e12, 1.0, 1e12), "flops is finite and more than 0"),
    (lambda: utilization(1e12, 1.0, 0.0), "a peak is finite and more than 0"),
    (lambda: utilization(1e12, 1.0, 1e12, devices=0), "devices is a whole number"),
    (lambda: utilization(1e12, 1.0, peak("H100 SXM", "tf32"), precision="bf16"),
     "computed in bf16, but the peak of H100 SXM is given for tf32"),
])
def test_wrong_input_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_without_a_gpu_there_is_no_device():
    if not torch.cuda.is_available():
        assert this_device() is None
    assert Peak(1e12, "fp32", "mine", "my own datasheet").flops == 1e12
