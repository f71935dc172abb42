// A function with TPU computations, called on a core that the caller chooses.
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

// What a kernel needs to call such a function: an instance for every core and set of argument
// devices, made when first needed.
class CoreFunction {
 public:
  // Changes the definitions that the function reaches, before it is instantiated for arguments with
  // the given shapes.
  using Prepare = std::function<absl::Status(const std::vector<tensorflow::Tensor>& arguments,
                                             tensorflow::FunctionLibraryDefinition* library)>;

  // With `prepare`, every set of argument shapes gets an instance of the function that `prepare`
  // leaves under `name`.
  CoreFunction(const tensorflow::OpKernel& kernel, const tensorflow::NameAttrList& function,
               std::string name, Prepare prepare);
  ~CoreFunction();

  // Runs the function with the arguments on core `ordinal`; its results become the op's outputs.
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
    // `handle` refers to these, so they must live as long.
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
