// Kernels of the ops that load and retrieve the embedding tables and their slots: ops for a single
// table, one for each optimizer, and an op for all tables.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cc/base/process.h"
#include "cc/embedding/current_embedding.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"
#include "tensorflow/core/tpu/tpu_embedding_optimization_parameters_utils.h"
#include "xla/tsl/platform/errors.h"
#include "xla/tsl/platform/statusor.h"

namespace tf_tpu_ext {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr char kDebugSuffix[] = "GradAccumDebug";

// An op on one host's shard of the tables.
class ShardOp : public OpKernel {
 public:
  explicit ShardOp(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("num_shards", &num_shards_));
    OP_REQUIRES_OK(construction, construction->GetAttr("shard_id", &shard_));
    OP_REQUIRES_OK(construction, construction->GetAttr("config", &config_));
  }

  void Compute(OpKernelContext* context) final {
    OP_REQUIRES_VALUE(const std::shared_ptr<EmbeddingEngine> engine, context, Engine());
    OP_REQUIRES_OK(context, Run(context, *engine));
  }

 protected:
  virtual absl::Status Run(OpKernelContext* context, EmbeddingEngine& engine) const = 0;

  absl::StatusOr<std::vector<int64_t>> Rows(const EmbeddingEngine& engine, int table) const {
    return engine.layout().RowsOfShard(table, shard_, num_shards_);
  }

  // Loads the table from the tensors: its parameters, then its slots.
  absl::Status Load(EmbeddingEngine& engine, int table, absl::Span<const Tensor> tensors) const {
    TF_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, Rows(engine, table));
    const EmbeddingLayout::Table& described = engine.layout().tables[table];
    const TensorShape expected({static_cast<int64_t>(rows.size()), described.dim});
    std::vector<absl::Span<const float>> states;
    for (const Tensor& tensor : tensors) {
      if (tensor.shape() != expected) {
        return absl::InvalidArgumentError(absl::StrCat(
            "Op ", name(), " loads embedding table '", described.name, "' with a tensor of shape ",
            tensor.shape().DebugString(), "; shard ", shard_, " of ", num_shards_,
            " has the shape ", expected.DebugString(), "."));
      }
      const auto values = tensor.flat<float>();
      states.emplace_back(values.data(), values.size());
    }
    return engine.Load(table, rows, states);
  }

 private:
  absl::StatusOr<std::shared_ptr<EmbeddingEngine>> Engine() const {
    auto engine = Process::Get().embedding->Require(name());
    if (!engine.ok() || Process::Get().embedding->IsConfigured(config_)) return engine;
    return absl::FailedPreconditionError(
        absl::StrCat("The config of op ", name(),
                     " is not the one that the TPU is configured with. Initialize the TPU system "
                     "again before another configuration."));
  }

  int64_t num_shards_ = 1;
  int64_t shard_ = 0;
  std::string config_;
};

// An op on one table.
class TableOp : public ShardOp {
 public:
  explicit TableOp(OpKernelConstruction* construction) : ShardOp(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("table_id", &table_id_));
    OP_REQUIRES_OK(construction, construction->GetAttr("table_name", &table_name_));
    // The ops for debugging also have the accumulator of gradients, which is always empty.
    has_accumulator_ = absl::EndsWith(type_string(), kDebugSuffix);
  }

 protected:
  virtual absl::Status RunOnTable(OpKernelContext* context, EmbeddingEngine& engine,
                                  int table) const = 0;

  // How many of the op's inputs or outputs are the table's parameters and slots.
  int NumStates(int num_tensors) const { return num_tensors - (has_accumulator_ ? 1 : 0); }

 private:
  absl::Status Run(OpKernelContext* context, EmbeddingEngine& engine) const final {
    TF_ASSIGN_OR_RETURN(const int table, engine.layout().FindTable(table_name_, table_id_));
    return RunOnTable(context, engine, table);
  }

  bool has_accumulator_ = false;
  int64_t table_id_ = -1;
  std::string table_name_;
};

class LoadOp : public TableOp {
 public:
  using TableOp::TableOp;

 private:
  absl::Status RunOnTable(OpKernelContext* context, EmbeddingEngine& engine,
                          int table) const override {
    std::vector<Tensor> tensors;
    for (int i = 0; i < NumStates(context->num_inputs()); ++i) {
      tensors.push_back(context->input(i));
    }
    return Load(engine, table, tensors);
  }
};

class RetrieveOp : public TableOp {
 public:
  using TableOp::TableOp;

 private:
  absl::Status RunOnTable(OpKernelContext* context, EmbeddingEngine& engine,
                          int table) const override {
    TF_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, Rows(engine, table));
    const EmbeddingLayout::Table& described = engine.layout().tables[table];
    const int states = NumStates(context->num_outputs());
    const std::vector<std::string>& slots = engine.slots(table);
    if (states != 1 + static_cast<int>(slots.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("Op ", name(), " retrieves ", states - 1, " slots of embedding table '",
                       described.name, "'; its optimizer has ", slots.size(),
                       ". Retrieve it by the op of the optimizer that it was configured with."));
    }
    const TensorShape shape({static_cast<int64_t>(rows.size()), described.dim});
    std::vector<float*> targets;
    for (int i = 0; i < context->num_outputs(); ++i) {
      Tensor* output = nullptr;
      TF_RETURN_IF_ERROR(context->allocate_output(i, shape, &output));
      if (i < states) {
        targets.push_back(output->flat<float>().data());
      } else {
        output->flat<float>().setConstant(tensorflow::tpu::GradientAccumulatorInitialValue());
      }
    }
    engine.Retrieve(table, rows, targets);
    return absl::OkStatus();
  }
};

constexpr int kNumStates = tensorflow::tpu::kMaxAuxiliaryParameterCount + 1;

std::string StateName(int state) {
  return state == 0 ? "parameters" : absl::StrCat("auxiliary", state);
}

// An op on all tables, which has kNumStates lists of tensors, each with one tensor per table.
class AllTablesOp : public ShardOp {
 public:
  using ShardOp::ShardOp;

 protected:
  absl::Status CheckNumTables(const EmbeddingEngine& engine, const char* verb, int count) const {
    const size_t tables = engine.layout().tables.size();
    if (static_cast<size_t>(count) == tables) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("Op ", name(), " ", verb, " ", count,
                                                   " embedding tables; the TPU is configured with ",
                                                   tables, "."));
  }
};

class LoadAllOp : public AllTablesOp {
 public:
  using AllTablesOp::AllTablesOp;

 private:
  absl::Status Run(OpKernelContext* context, EmbeddingEngine& engine) const override {
    std::vector<tensorflow::OpInputList> lists(kNumStates);
    for (int state = 0; state < kNumStates; ++state) {
      TF_RETURN_IF_ERROR(context->input_list(StateName(state), &lists[state]));
    }
    TF_RETURN_IF_ERROR(CheckNumTables(engine, "loads", lists[0].size()));
    for (int table = 0; table < lists[0].size(); ++table) {
      std::vector<Tensor> tensors;
      for (size_t state = 0; state < 1 + engine.slots(table).size(); ++state) {
        tensors.push_back(lists[state][table]);
      }
      TF_RETURN_IF_ERROR(Load(engine, table, tensors));
    }
    return absl::OkStatus();
  }
};

class RetrieveAllOp : public AllTablesOp {
 public:
  using AllTablesOp::AllTablesOp;

 private:
  absl::Status Run(OpKernelContext* context, EmbeddingEngine& engine) const override {
    std::vector<tensorflow::OpOutputList> lists(kNumStates);
    for (int state = 0; state < kNumStates; ++state) {
      TF_RETURN_IF_ERROR(context->output_list(StateName(state), &lists[state]));
    }
    TF_RETURN_IF_ERROR(CheckNumTables(engine, "retrieves", lists[0].size()));
    for (int table = 0; table < lists[0].size(); ++table) {
      TF_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, Rows(engine, table));
      std::vector<float*> targets;
      for (int state = 0; state < kNumStates; ++state) {
        // The op has outputs for as many slots as any optimizer may have; the rest stay empty.
        const bool used = state <= static_cast<int>(engine.slots(table).size());
        const TensorShape shape({used ? static_cast<int64_t>(rows.size()) : 0,
                                 used ? engine.layout().tables[table].dim : 0});
        Tensor* output = nullptr;
        TF_RETURN_IF_ERROR(lists[state].allocate(table, shape, &output));
        if (used) targets.push_back(output->flat<float>().data());
      }
      engine.Retrieve(table, rows, targets);
    }
    return absl::OkStatus();
  }
};

template <typename Kernel>
void RegisterIfOpExists(const std::string& op) {
  const tensorflow::OpDef* definition;
  if (!tensorflow::OpRegistry::Global()->LookUpOpDef(op, &definition).ok()) return;
  class Factory : public tensorflow::kernel_factory::OpKernelFactory {
   public:
    OpKernel* Create(OpKernelConstruction* construction) override {
      return new Kernel(construction);
    }
  };
  // The registry takes ownership of the KernelDef.
  tensorflow::kernel_factory::OpKernelRegistrar(
      tensorflow::KernelDefBuilder(op.c_str()).Device(tensorflow::DEVICE_CPU).Build(),
      "EmbeddingStateKernel", std::make_unique<Factory>());
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const auto algorithm : tensorflow::tpu::GetOptimizationAlgorithms()) {
    const std::string name = absl::StrCat(
        "TPUEmbedding", tensorflow::tpu::GetOptimizationAlgorithmName(algorithm), "Parameters");
    for (const char* suffix : {"", kDebugSuffix}) {
      RegisterIfOpExists<LoadOp>(absl::StrCat("Load", name, suffix));
      RegisterIfOpExists<RetrieveOp>(absl::StrCat("Retrieve", name, suffix));
    }
  }
  return true;
}();

REGISTER_KERNEL_BUILDER(Name("LoadAllTPUEmbeddingParameters").Device(tensorflow::DEVICE_CPU),
                        LoadAllOp);
REGISTER_KERNEL_BUILDER(Name("RetrieveAllTPUEmbeddingParameters").Device(tensorflow::DEVICE_CPU),
                        RetrieveAllOp);

}  // namespace
}  // namespace tf_tpu_ext
