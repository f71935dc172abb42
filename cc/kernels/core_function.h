// A function with TPU computations, called on a core that the caller names.
#ifndef TF_TPU_EXT_CC_KERNELS_CORE_FUNCTION_H_
#define TF_TPU_EXT_CC_KERNELS_CORE_FUNCTION_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tf_tpu_ext {

// What a kernel needs that calls such a function: an instance for every core and set of argument
// devices, made when it is first needed.
class CoreFunction {
 public:
  // Changes the definitions that the function reaches, before it is instantiated for arguments of
  // the given shapes.
  using Prepare = std::function<absl::Status(const std::vector<tensorflow::Tensor>& arguments,
                                             tensorflow::FunctionLibraryDefinition* library)>;

  // With `prepare`, every set of argument shapes gets an instance, of the function that it leaves
  // under `name`.
  CoreFunction(const tensorflow::OpKernel& kernel, const tensorflow::NameAttrList& function,
               std::string name, Prepare prepare);
  ~CoreFunction();

  // Runs the function with the arguments on core `ordinal`; the results are the op's outputs.
  void Call(tensorflow::OpKernelContext* context, const std::vector<tensorflow::Tensor>& arguments,
            int ordinal, tensorflow::AsyncOpKernel::DoneCallback done);

 private:
  using Library = tensorflow::FunctionLibraryRuntime;

  // What an instance of the function was made for.
  struct Key {
    Library* library = nullptr;
    int ordinal = 0;
    std::vector<std::string> input_devices;
    std::string shapes;

    bool operator<(const Key& other) const;
  };

  struct Instance {
    Library::Handle handle;
    // What `handle` refers to: must live as long.
    std::unique_ptr<const tensorflow::FunctionLibraryDefinition> definitions;
  };

  absl::StatusOr<Library::Handle> Find(Library* library,
                                       const std::vector<tensorflow::Tensor>& arguments,
                                       int ordinal);
  absl::StatusOr<Instance> Instantiate(const Key& key,
                                       const std::vector<tensorflow::Tensor>& arguments) const;

  const std::string kernel_name_;
  const tensorflow::DataTypeVector output_types_;
  const tensorflow::NameAttrList function_;
  const std::string name_;
  const Prepare prepare_;
  absl::Mutex mutex_;
  std::map<Key, Instance> instances_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_KERNELS_CORE_FUNCTION_H_
