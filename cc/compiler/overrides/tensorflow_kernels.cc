#include "cc/compiler/overrides/tensorflow_kernels.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "cc/compiler/overrides/override_ops.h"
#include "cc/ops/window_ops.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/kernel_shape_util.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/util/padding.h"
#include "tensorflow/core/util/port.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::DataType;
using tensorflow::NodeDef;
using tensorflow::TensorShape;

// Calling a kernel takes about 15 microseconds, in which XLA's code does about this much work.
constexpr int64_t kLeastWork = 100'000;

// The largest window whose elements are compared one by one.
constexpr int64_t kLargestTile = 16;

const absl::flat_hash_set<std::string>& Ops() {
  static const auto* const ops = [] {
    auto* made = new absl::flat_hash_set<std::string>;
    for (const auto& [op, route] : WindowOps()) made->insert(op);
    return made;
  }();
  return *ops;
}

[[maybe_unused]] const bool kTensorFlowKernelsRegistered = [] {
  RegisterOverrideOps(kKernelPrefix, Ops(),
                      "run by one of TensorFlow's CPU kernels where there is a suitable one.");
  return true;
}();

// The spatial part of an attribute with one number per dimension, which must not affect batch and
// channels. All ones if the op lacks the attribute.
std::optional<std::vector<int32_t>> Spatial(const NodeDef& node, const char* name, int spatial) {
  std::vector<int32_t> values;
  if (!tensorflow::GetNodeAttr(node, name, &values).ok() || values.empty()) {
    return std::vector<int32_t>(spatial, 1);
  }
  if (static_cast<int>(values.size()) != spatial + 2) return std::nullopt;
  if (values.front() != 1 || values.back() != 1) return std::nullopt;
  if (*std::min_element(values.begin(), values.end()) < 1) return std::nullopt;
  return std::vector<int32_t>(values.begin() + 1, values.end() - 1);
}

struct Windows {
  TensorShape input, filter, output;
  std::vector<int32_t> strides, dilations;
  bool overlap = false;
  int64_t work = 0;
};

// What an element of a window costs XLA, relative to a multiply-add of a convolution.
int64_t CostOf(const WindowOp& route) {
  if (route.family == WindowOp::kConvolution) return 1;
  if (route.family == WindowOp::kDepthwise) return 16;
  return route.output == kResultOfOp ? 8 : 64;
}

// The output shape of windows of `sizes` that slide over the input's spatial dimensions.
std::optional<TensorShape> SlideOver(const TensorShape& input, const std::vector<int64_t>& sizes,
                                     const Windows& windows, tensorflow::Padding padding,
                                     int64_t channels) {
  TensorShape output({input.dim_size(0)});
  for (size_t d = 0; d < sizes.size(); ++d) {
    int64_t size, before, after;
    const absl::Status status = tensorflow::GetWindowedOutputSizeVerbose(
        input.dim_size(d + 1), sizes[d], windows.dilations[d], windows.strides[d], padding, &size,
        &before, &after);
    if (!status.ok() || size < 1) return std::nullopt;
    output.AddDim(size);
  }
  output.AddDim(channels);
  return output;
}

// Reads the strides and dilations. Returns false if no kernel accepts this form of the op.
bool ReadAttributes(const NodeDef& node, const WindowOp& route, Windows* windows,
                    tensorflow::Padding* padding) {
  std::string format;
  if (!tensorflow::GetNodeAttr(node, "padding", padding).ok() || *padding == tensorflow::EXPLICIT ||
      !GetNodeAttr(node, "data_format", &format).ok() ||
      format != (route.spatial == 2 ? "NHWC" : "NDHWC")) {
    return false;
  }
  auto strides = Spatial(node, "strides", route.spatial);
  auto dilations = Spatial(node, "dilations", route.spatial);
  if (!strides || !dilations) return false;
  windows->strides = *std::move(strides);
  windows->dilations = *std::move(dilations);
  return true;
}

// Reads the shapes of the operands, and of the result if an operand holds it. Returns false if one
// is empty or has the wrong rank.
bool ReadShapes(const WindowOp& route, const std::vector<KernelOperand>& operands,
                Windows* windows) {
  const auto read = [&](int place, TensorShape* shape) {
    if (place == kNoOperand) return true;
    if (place != kResultOfOp) {
      *shape = operands[place].shape;
    } else if (route.sizes != kNoOperand) {
      const auto& sizes = operands[route.sizes].sizes;
      if (!TensorShape::BuildTensorShape(sizes, shape).ok()) return false;
    } else {
      return true;
    }
    return shape->dims() == route.spatial + 2 && shape->num_elements() > 0;
  };
  return read(route.input, &windows->input) && read(route.filter, &windows->filter) &&
         read(route.output, &windows->output);
}

// The sizes of a window, and the number of channels of the output. None if the filter does not fit
// the input: either the op is in error, or the convolution is grouped, which kernels don't support.
struct WindowSizes {
  std::vector<int64_t> sizes;
  int64_t channels = 0;
};
std::optional<WindowSizes> SizesOf(const NodeDef& node, const WindowOp& route,
                                   const Windows& windows) {
  const int64_t depth = windows.input.dim_size(route.spatial + 1);
  if (route.family == WindowOp::kPool) {
    const auto ksize = Spatial(node, "ksize", route.spatial);
    if (!ksize) return std::nullopt;
    return WindowSizes{{ksize->begin(), ksize->end()}, depth};
  }
  if (windows.filter.dim_size(route.spatial) != depth) return std::nullopt;
  WindowSizes window;
  for (int d = 0; d < route.spatial; ++d) window.sizes.push_back(windows.filter.dim_size(d));
  const int64_t last = windows.filter.dim_size(route.spatial + 1);
  window.channels = route.family == WindowOp::kDepthwise ? depth * last : last;
  return window;
}

// The shapes of a valid op whose result is not empty.
std::optional<Windows> WindowsOf(const NodeDef& node, const WindowOp& route,
                                 const std::vector<KernelOperand>& operands) {
  Windows windows;
  tensorflow::Padding padding;
  if (!ReadAttributes(node, route, &windows, &padding) || !ReadShapes(route, operands, &windows)) {
    return std::nullopt;
  }
  const std::optional<WindowSizes> window = SizesOf(node, route, windows);
  if (!window) return std::nullopt;
  std::optional<TensorShape> output =
      SlideOver(windows.input, window->sizes, windows, padding, window->channels);
  if (!output || (route.output != kResultOfOp && *output != windows.output)) return std::nullopt;
  windows.output = *std::move(output);
  windows.work = windows.output.num_elements() * CostOf(route);
  if (route.family == WindowOp::kConvolution) {
    windows.work *= windows.input.dim_size(route.spatial + 1);
  }
  for (size_t d = 0; d < window->sizes.size(); ++d) {
    windows.work *= window->sizes[d];
    windows.overlap = windows.overlap || window->sizes[d] > windows.strides[d];
  }
  return windows;
}

// A node of the given op, with those attributes of `node` that the op has.
std::optional<NodeDef> WithAttributesOf(const NodeDef& node, const std::string& op) {
  const tensorflow::OpDef* definition = nullptr;
  if (!tensorflow::OpRegistry::Global()->LookUpOpDef(op, &definition).ok()) return std::nullopt;
  NodeDef made;
  made.set_name(node.op());
  made.set_op(op);
  // A node must name its inputs, but nobody looks them up.
  for (const auto& input : definition->input_arg()) made.add_input(input.name());
  auto& attributes = *made.mutable_attr();
  for (const auto& attribute : definition->attr()) {
    const auto given = node.attr().find(attribute.name());
    if (given != node.attr().end()) {
      attributes[attribute.name()] = given->second;
    } else if (attribute.has_default_value()) {
      attributes[attribute.name()] = attribute.default_value();
    }
  }
  // Sizes are passed as 32-bit integers.
  if (auto sizes = attributes.find("Tshape"); sizes != attributes.end()) {
    sizes->second.set_type(tensorflow::DT_INT32);
  }
  return made;
}

bool HasKernel(const NodeDef& node) {
  return tensorflow::FindKernelDef(tensorflow::DeviceType(tensorflow::DEVICE_CPU), node, nullptr,
                                   nullptr)
      .ok();
}

std::optional<NodeDef> OneDnnNode(const NodeDef& node, const std::string& op) {
  if (!tensorflow::IsMklEnabled()) return std::nullopt;
  auto made = WithAttributesOf(node, absl::StrCat("_MklNative", op));
  if (!made) return std::nullopt;
  (*made->mutable_attr())["_kernel"].set_s("MklNameChangeOp");
  return HasKernel(*made) ? made : std::nullopt;
}

std::optional<NodeDef> EigenNode(const NodeDef& node, const WindowOp& route,
                                 const Windows& windows) {
  const bool dilated = std::any_of(windows.dilations.begin(), windows.dilations.end(),
                                   [](int32_t dilation) { return dilation != 1; });
  if (dilated && node.op() != "Conv2D") return std::nullopt;
  auto made = WithAttributesOf(node, node.op());
  return made && HasKernel(*made) ? made : std::nullopt;
}

// The type that a kernel of the op should compute in. XLA adds in float32 and rounds the sum, also
// for smaller types. Of TensorFlow's kernels, only oneDNN's convolutions in bfloat16 do the same,
// and only some processors run them fast.
DataType KernelType(const NodeDef& node, const WindowOp& route, DataType type) {
  const bool as_it_is = type == DataType::DT_BFLOAT16 && route.family == WindowOp::kConvolution &&
                        tensorflow::port::TestCPUFeature(tensorflow::port::AVX512F) &&
                        OneDnnNode(node, node.op());
  return as_it_is ? type : DataType::DT_FLOAT;
}

// The kernel for operands of type T, which is an attribute of `node`.
std::optional<NodeDef> KernelNode(const NodeDef& node, const WindowOp& route,
                                  const Windows& windows, KernelChoice* choice) {
  std::optional<NodeDef> kernel = OneDnnNode(node, node.op());
  if (kernel && node.op() == "MaxPoolGrad") {
    // Only oneDNN's own forward kernel says which element of a window is the largest. Even running
    // it a second time is faster than any other gradient.
    choice->before = OneDnnNode(node, "MaxPool");
    if (!choice->before) kernel.reset();
  }
  return kernel ? kernel : EigenNode(node, route, windows);
}

}  // namespace

int SizesOperand(const std::string& op) {
  const auto route = WindowOps().find(op);
  return route == WindowOps().end() ? kNoOperand : route->second.sizes;
}

std::optional<KernelChoice> ChooseKernel(const NodeDef& node,
                                         const std::vector<KernelOperand>& operands) {
  const auto found = WindowOps().find(node.op());
  if (found == WindowOps().end()) return std::nullopt;
  const WindowOp& route = found->second;
  const DataType type = operands.back().type;
  if (type != DataType::DT_FLOAT && type != DataType::DT_BFLOAT16 && type != DataType::DT_HALF) {
    return std::nullopt;
  }
  for (int i = 0; i < static_cast<int>(operands.size()); ++i) {
    if (i != route.sizes && operands[i].type != type) return std::nullopt;
  }
  std::optional<Windows> windows = WindowsOf(node, route, operands);
  if (!windows || windows->work < kLeastWork) return std::nullopt;
  // If windows share no elements, XLA's gradient is faster.
  if (node.op() == "AvgPoolGrad" && !windows->overlap) return std::nullopt;
  KernelChoice choice;
  choice.work = windows->work;
  if (node.op() == "MaxPoolGrad") {
    if (operands[1].shape != windows->output) return std::nullopt;
    choice.shape = windows->input;
  } else {
    choice.shape = route.input == kResultOfOp    ? windows->input
                   : route.filter == kResultOfOp ? windows->filter
                                                 : windows->output;
  }
  choice.type = KernelType(node, route, type);
  NodeDef typed = node;
  (*typed.mutable_attr())["T"].set_type(choice.type);
  std::optional<NodeDef> kernel = KernelNode(typed, route, *windows, &choice);
  if (!kernel) return std::nullopt;
  choice.node = *std::move(kernel);
  return choice;
}

std::optional<std::vector<int32_t>> TilesOfMaxPoolGrad(const NodeDef& node,
                                                       const std::vector<KernelOperand>& operands) {
  if (node.op() != "MaxPoolGrad") return std::nullopt;
  const WindowOp& route = WindowOps().at(node.op());
  const std::optional<Windows> windows = WindowsOf(node, route, operands);
  if (!windows || operands[1].shape != windows->output) return std::nullopt;
  const std::optional<std::vector<int32_t>> sizes = Spatial(node, "ksize", route.spatial);
  if (sizes != windows->strides) return std::nullopt;
  int64_t elements = 1;
  for (int d = 0; d < route.spatial; ++d) {
    const int64_t size = (*sizes)[d];
    if (windows->output.dim_size(d + 1) * size != windows->input.dim_size(d + 1)) {
      return std::nullopt;
    }
    elements *= size;
  }
  return elements > kLargestTile ? std::nullopt : sizes;
}

absl::Status UseTensorFlowKernels(tensorflow::FunctionLibraryDefinition* library) {
  return ReplaceByOverrides(kKernelPrefix, Ops(), library);
}

}  // namespace tf_tpu_ext
