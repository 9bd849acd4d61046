"""Which operator of PyTorch becomes which row of docs/layers.md. An operator that is in no table here is refused."""

# The same elements by another shape: no kernel, no row.
VIEWS = {"view", "_unsafe_view", "_reshape_alias", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze",
         "expand", "detach", "alias", "flatten", "as_strided", "as_strided_", "squeeze_", "unsqueeze_", "lift_fresh",
         "movedim", "unflatten", "expand_as", "view_as", "contiguous"}
# A part of the elements: a row `slice`, written where somebody reads it.
SLICES = {"slice", "select", "narrow", "diagonal"}
# Parts that share one gradient: rows `part`.
PARTS = {"split", "split_with_sizes", "chunk", "unbind", "unsafe_split", "unsafe_chunk", "tensor_split"}
# Memory that nothing has been written to.
EMPTY = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}
FILLED = {"zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full",
          "arange", "linspace", "scalar_tensor"}
RANDOM = {"bernoulli", "bernoulli_", "uniform_", "normal_", "rand", "rand_like", "randn", "randn_like"}
IGNORED = {"_assert_async", "sym_size", "_local_scalar_dense", "item", "is_same_size", "record_stream"}

ACTIVATIONS = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "gelu": "gelu", "silu": "silu",
               "hardswish": "hardswish", "hardsigmoid": "hardsigmoid", "mish": "mish", "softplus": "softplus",
               "leaky_relu": "leaky_relu", "elu": "elu", "hardtanh": "relu6", "relu6": "relu6"}
FUNCTIONS = {"clamp", "clamp_min", "clamp_max", "exp", "log", "sqrt", "rsqrt", "pow", "abs", "reciprocal", "square",
             "sin", "cos", "erf", "log_sigmoid_forward", "threshold"}
ELEMENTWISE = {"sub", "rsub", "eq", "ne", "lt", "le", "gt", "ge", "where", "masked_fill", "maximum", "minimum",
               "logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or", "bitwise_not", "addcmul",
               "lerp"}
COPIES = {"clone", "_to_copy", "copy", "roll", "flip", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle",
          "im2col", "col2im", "repeat", "tril", "triu"}
REDUCTIONS = {"sum", "mean", "amax", "amin", "max", "min", "var", "var_mean", "norm", "linalg_vector_norm",
              "logsumexp", "argmax", "prod"}
POOLS = {"avg_pool2d": "avg_pool", "max_pool2d_with_indices": "max_pool", "max_pool2d": "max_pool"}
ADAPTIVE = {"_adaptive_avg_pool2d": "avg_pool", "adaptive_avg_pool2d": "avg_pool", "adaptive_max_pool2d": "max_pool"}
PADS = {"constant_pad_nd", "reflection_pad2d", "replication_pad2d", "pad"}
SOFTMAXES = {"_softmax", "_log_softmax", "softmax", "log_softmax", "_safe_softmax"}
BATCH_NORMS = {"native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit",
               "_native_batch_norm_legit_functional", "_batch_norm_with_update", "batch_norm", "miopen_batch_norm"}
CONVOLUTIONS = {"convolution", "_convolution", "cudnn_convolution", "conv2d", "convolution_overrideable"}
ATTENTION = {"_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
             "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_flash_attention_for_cpu",
             "_scaled_dot_product_fused_attention_overrideable"}
TREATMENTS = ("view", "copy", "elementwise", "function", "activation", "reduce", "ignore")
