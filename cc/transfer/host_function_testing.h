// For tests: host functions, each with one op or a chain of them.
#ifndef TF_TPU_EXT_CC_TRANSFER_HOST_FUNCTION_TESTING_H_
#define TF_TPU_EXT_CC_TRANSFER_HOST_FUNCTION_TESTING_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cc/program/host_function_source.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/types.pb.h"

namespace tf_tpu_ext {

// A function from float to float that applies the ops one after another. The names of test ops
// begin with "TpuExtTest>", and these ops have no attributes.
inline HostFunctionSource ChainOfOps(const std::string& name, const std::vector<std::string>& ops) {
  tensorflow::FunctionDefLibrary library;
  tensorflow::FunctionDef* function = library.add_function();
  function->mutable_signature()->set_name(name);
  auto* input = function->mutable_signature()->add_input_arg();
  input->set_name("x");
  input->set_type(tensorflow::DT_FLOAT);
  auto* output = function->mutable_signature()->add_output_arg();
  output->set_name("result");
  output->set_type(tensorflow::DT_FLOAT);
  std::string value = "x";
  for (const std::string& op : ops) {
    tensorflow::NodeDef* node = function->add_node_def();
    node->set_name(absl::StrCat("the_op", function->node_def_size() - 1));
    node->set_op(op);
    node->add_input(value);
    if (op == "CheckNumerics") tensorflow::AddNodeAttr("message", "not a number", node);
    if (!absl::StartsWith(op, "TpuExtTest>")) {
      tensorflow::AddNodeAttr("T", tensorflow::DT_FLOAT, node);
    }
    value = absl::StrCat(node->name(), op == "CheckNumerics" ? ":output:0" : ":y:0");
  }
  (*function->mutable_ret())["result"] = std::move(value);
  return {name, library.SerializeAsString(), "train.py:7"};
}

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_TRANSFER_HOST_FUNCTION_TESTING_H_
