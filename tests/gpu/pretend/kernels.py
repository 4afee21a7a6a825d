"""What an operation costs an NVIDIA GPU: kernels, waits of the host, sums in an order of chance."""

# Operations that end in a copy of a size or a value to the host; boolean indices and copies are seen by tensors.py.
WAITS = {
    "aten::_local_scalar_dense": "item", "aten::nonzero": "nonzero", "aten::masked_select": "masked_select",
    "aten::_unique2": "unique", "aten::unique_dim": "unique", "aten::unique_consecutive": "unique",
    "aten::bincount": "bincount", "aten::repeat_interleave": "repeat_interleave", "aten::equal": "equal",
    "aten::linalg_eigh": "eigh", "aten::_linalg_eigh": "eigh", "aten::_linalg_svd": "svd", "aten::histc": "histc",
    "aten::_linalg_solve_ex": "solve", "aten::argwhere": "nonzero",
}  # fmt: skip

# Operations without a kernel.
FREE = {
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided",
    "aten::_local_scalar_dense", "aten::lift_fresh", "aten::set_", "aten::resize_", "aten::detach", "aten::alias",
}  # fmt: skip

# Kernels of an operation that has more than one (an estimate, with cuDNN). Those that take several tensors at once have
# one for up to 20 million values.
KERNELS = {
    "aten::convolution_backward": 2, "aten::nonzero": 3, "aten::bincount": 4, "aten::native_group_norm": 2,
    "aten::native_group_norm_backward": 4, "aten::native_layer_norm_backward": 2, "aten::sort": 3,
    "aten::unfold_backward": 2, "aten::index_put_": 2, "aten::max_pool2d_with_indices_backward": 2,
    "aten::nll_loss_backward": 2, "aten::constant_pad_nd": 2, "aten::scatter_add": 2, "aten::_unique2": 6,
    "aten::gather_backward": 2,
}  # fmt: skip

# Sums by atomic additions, whose bits differ from run to run even with deterministic cuDNN.
ATOMIC = {
    "aten::index_add_", "aten::index_add", "aten::scatter_add_", "aten::scatter_add", "aten::scatter_reduce_",
    "aten::upsample_bilinear2d_backward", "aten::grid_sampler_2d_backward", "aten::histc", "aten::put_",
    "aten::_adaptive_avg_pool2d_backward", "aten::cumsum", "aten::reflection_pad2d_backward",
}  # fmt: skip
