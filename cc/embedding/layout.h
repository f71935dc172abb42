// What a TPUEmbeddingConfiguration says about tables and about the tensors that programs get.
#ifndef TF_TPU_EXT_CC_EMBEDDING_LAYOUT_H_
#define TF_TPU_EXT_CC_EMBEDDING_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensorflow/core/protobuf/tpu/tpu_embedding_configuration.pb.h"

namespace tf_tpu_ext {

struct EmbeddingLayout {
  struct Table {
    std::string name;
    int64_t rows = 0;
    int dim = 0;
    // For a configuration without features: samples per core, and features per sample.
    int batch_size = 0;
    int num_features = 0;
  };
  // A tensor of one core's activations, [shape..., table's dim], and of their gradients.
  struct Output {
    // The name in error messages.
    std::string name;
    int table = 0;
    std::vector<int64_t> shape;
    // The product of `shape`.
    int64_t rows = 0;
  };

  std::vector<Table> tables;
  std::vector<Output> outputs;
  // Whether the outputs are features; otherwise each one holds all features of a table.
  bool by_feature = false;
  int num_cores = 0;
  // How many cores share the computation of a replica, each with a batch of its own.
  int cores_per_replica = 1;
  bool pipelined = false;
  tensorflow::tpu::TPUEmbeddingConfiguration::Mode mode =
      tensorflow::tpu::TPUEmbeddingConfiguration::UNSPECIFIED;
  tensorflow::tpu::TPUEmbeddingConfiguration::ShardingStrategy sharding =
      tensorflow::tpu::TPUEmbeddingConfiguration::DIV_DEFAULT;

  // Returns InvalidArgument if the configuration contradicts itself.
  static absl::StatusOr<EmbeddingLayout> Create(
      const tensorflow::tpu::TPUEmbeddingConfiguration& config);

  // The table of a load or retrieve op, given by name or by number; the other is empty or negative.
  absl::StatusOr<int> FindTable(const std::string& name, int64_t number) const;

  // The rows of a table that belong to a shard, in ascending order.
  absl::StatusOr<std::vector<int64_t>> RowsOfShard(int table, int64_t shard,
                                                   int64_t num_shards) const;
};

}  // namespace tf_tpu_ext

#endif  // TF_TPU_EXT_CC_EMBEDDING_LAYOUT_H_
