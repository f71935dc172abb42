#include "cc/profile/serial_spans.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tf_tpu_ext {

SerialSpans MakeSerial(std::vector<Span> spans) {
  SerialSpans serial;
  serial.spans = std::move(spans);
  std::vector<Span>& shown = serial.spans;
  serial.order.resize(shown.size());
  std::iota(serial.order.begin(), serial.order.end(), 0);
  std::stable_sort(serial.order.begin(), serial.order.end(), [&](int a, int b) {
    return shown[a].begin != shown[b].begin ? shown[a].begin < shown[b].begin
                                            : shown[a].end > shown[b].end;
  });
  // Those that have not ended, each inside the one before it.
  std::vector<int> open;
  for (int next : serial.order) {
    const Span& span = shown[next];
    while (!open.empty() && shown[open.back()].end <= span.begin) open.pop_back();
    while (!open.empty() && shown[open.back()].end < span.end) {
      shown[open.back()].end = span.begin;
      open.pop_back();
    }
    open.push_back(next);
  }
  return serial;
}

}  // namespace tf_tpu_ext
