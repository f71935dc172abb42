"""Small made-up data, in the formats in which the programs read it."""

from __future__ import annotations

import importlib
import json
import pathlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

# What programs' configurations say too.
MASKED = 4
COLORS = 3
DENSE_FEATURES = 5
_CLASSES = 10
_EXAMPLES = 256
# Token ids.
_FIRST, _MASK = 1, 3
_XLNET_CLS, _XLNET_SEP = 3, 4


def digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns images of 28 x 28 bytes with a bright bar whose row is the label, and the labels."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, _CLASSES, count).astype(np.uint8)
    images = random.integers(0, 60, (count, 28, 28)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label + 4 : 2 * label + 7, 4:24] = 230
    return images, labels


def mnist(folder: pathlib.Path) -> None:
    """Writes MNIST's four files, without compression."""
    for name, count, seed in (("train", 640, 1), ("t10k", 160, 2)):
        images, labels = digits(count, seed)
        head = struct.pack(">IIII", 2051, count, 28, 28)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        head = struct.pack(">II", 2049, count)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())


def masked_sentences(path: pathlib.Path, length: int) -> None:
    """Writes BERT's examples for pretraining: counting tokens, with some masked.

    The second sentence goes on where the first ended, or it does not, which is the label.
    """
    random = np.random.default_rng(0)
    half = length // 2
    with _writer(path) as writer:
        for _ in range(_EXAMPLES):
            start, label = random.integers(10, 60), int(random.integers(2))
            tokens = start + np.arange(length) % 8
            tokens[half:] += 30 * label
            tokens[0] = _FIRST
            positions = np.sort(random.choice(np.arange(1, length), MASKED, replace=False))
            masked = tokens[positions].copy()
            tokens[positions] = _MASK
            writer.write(
                _example(
                    input_ids=tokens,
                    segment_ids=np.repeat([0, 1], half),
                    input_mask=np.ones(length, np.int64),
                    masked_lm_positions=positions,
                    masked_lm_ids=masked,
                    masked_lm_weights=np.ones(MASKED, np.float32),
                    next_sentence_labels=[label],
                )
            )


def streams(folder: pathlib.Path, length: int, reused: int, masked: int, batch: int) -> None:
    """Writes XLNet's examples for pretraining, and the file that lists them.

    Each place in a batch goes on where it was in the batch before. It has counting tokens, and two
    segments that go on with them or do not, which is the label.
    """
    random = np.random.default_rng(0)
    # As the program spells what the files are for.
    kind = f"bsz-{batch}.seqlen-{length}.reuse-{reused}.uni.alpha-6.beta-1.fnp-{masked}"
    path, batches = folder / f"train-0-0.{kind}.tfrecords", _EXAMPLES // batch
    starts = random.integers(10, 60, batch)
    # Two separators and a token for the class end the segments.
    first = (length - reused - 3) // 2
    second = length - reused - 3 - first
    with _writer(path) as writer:
        for number in range(batches):
            for start in starts:
                label = int(random.integers(2))
                after = start if label else start + 30
                tokens = start + np.arange(number * reused, (number + 1) * reused + first + 1) % 8
                other = after + np.arange(second + 1) % 8
                places = [
                    *random.choice(reused, masked // 2, replace=False),
                    *(reused + random.choice(first, masked - masked // 2, replace=False)),
                ]
                writer.write(
                    _example(
                        input=[*tokens[:-1], _XLNET_SEP, *other[:-1], _XLNET_SEP, _XLNET_CLS],
                        target=[*tokens[1:], *other, _XLNET_CLS, _XLNET_CLS],
                        is_masked=np.isin(np.arange(length), places).astype(np.int64),
                        seg_id=[*[0] * (reused + first + 1), *[1] * (second + 1), 2],
                        label=[label],
                    )
                )
    listed = {"filenames": [path.name], "num_batch": batches}
    (folder / f"record_info-train-0-0.{kind}.json").write_text(json.dumps(listed))


def labelled_sentences(path: pathlib.Path, length: int) -> None:
    """Writes BERT's examples for a classifier: the label tells high tokens from low ones."""
    random = np.random.default_rng(0)
    with _writer(path) as writer:
        for _ in range(_EXAMPLES):
            label = int(random.integers(2))
            tokens = random.integers(10, 50, length) + 40 * label
            tokens[0] = _FIRST
            writer.write(
                _example(
                    input_ids=tokens,
                    segment_ids=np.zeros(length, np.int64),
                    input_mask=np.ones(length, np.int64),
                    label_ids=[label],
                )
            )


def vocabulary(path: pathlib.Path, size: int) -> None:
    """Writes BERT's special tokens, and words for the other ids."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [f"{number}" for number in range(len(special), size)]
    path.write_text("\n".join([*special, *words]) + "\n")


def judged_sentences(folder: pathlib.Path, words: int) -> None:
    """Writes CoLA's files and a vocabulary: the label tells high words from low ones."""
    vocabulary(folder / "vocab.txt", words)
    random = np.random.default_rng(0)
    for part, count in (("train", _EXAMPLES), ("dev", _EXAMPLES // 4), ("test", _EXAMPLES // 4)):
        lines = ["id\tsentence"] if part == "test" else []
        for number in range(count):
            label = int(random.integers(2))
            text = " ".join(str(word) for word in random.integers(10, 50, 8) + 40 * label)
            lines.append(
                "\t".join([str(number), *([] if part == "test" else [str(label), "*"]), text])
            )
        (folder / f"{part}.tsv").write_text("\n".join(lines) + "\n")


def questions(folder: pathlib.Path, words: int) -> None:
    """Writes SQuAD's files and a vocabulary: the answer is the only high word of the text."""
    vocabulary(folder / "vocab.txt", words)
    random = np.random.default_rng(0)
    for part, count in (("train", _EXAMPLES), ("dev", _EXAMPLES // 4)):
        paragraphs = []
        for number in range(count):
            text = [str(word) for word in random.integers(10, 50, 8)]
            place, answer = int(random.integers(8)), str(random.integers(50, words))
            text[place] = answer
            start = len(" ".join([*text[:place], ""]))
            asked = {
                "id": f"{part}-{number}",
                "question": "5 6",
                "answers": [{"text": answer, "answer_start": start}],
            }
            paragraphs.append({"context": " ".join(text), "qas": [asked]})
        written = {"version": "1.1", "data": [{"title": part, "paragraphs": paragraphs}]}
        (folder / f"{part}.json").write_text(json.dumps(written))


def reviews(folder: pathlib.Path, tokens: int) -> None:
    """Writes IMDB's files and a model of sentencepiece: the review is good if its words are."""
    random = np.random.default_rng(0)
    texts = []
    for part, count in (("train", _EXAMPLES), ("test", _EXAMPLES // 4)):
        for number in range(count):
            kind = random.choice(["neg", "pos"])
            path = folder / part / kind / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            first = 50 if kind == "pos" else 10
            texts.append(" ".join(f"w{word}" for word in random.integers(first, first + 40, 8)))
            path.write_text(texts[-1])
    _sentence_pieces(folder, texts, tokens)


def exams(folder: pathlib.Path, tokens: int) -> None:
    """Writes RACE's files and a model of sentencepiece: the answer is the only high word."""
    random = np.random.default_rng(0)
    texts = []
    for part, count in (("train", _EXAMPLES), ("dev", _EXAMPLES // 4)):
        for number in range(count):
            text = " ".join(f"w{word}" for word in random.integers(10, 50, 8))
            options = [f"w{word}" for word in random.integers(10, 50, 4)]
            answer = int(random.integers(4))
            options[answer] = f"w{random.integers(50, 90)}"
            exam = {
                "article": text,
                "questions": ["w5 _"],
                "options": [options],
                "answers": ["ABCD"[answer]],
            }
            path = folder / part / ("high" if number % 2 else "middle") / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(exam))
            texts.append(" ".join([text, "w5", *options]))
    _sentence_pieces(folder, texts, tokens)


def _sentence_pieces(folder: pathlib.Path, texts: Sequence[str], tokens: int) -> None:
    sentencepiece = importlib.import_module("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_prefix=str(folder / "spiece"),
        vocab_size=tokens,
        # The ids that XLNet's scripts use.
        control_symbols=["<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"],
        hard_vocab_limit=False,
    )


def colored_images(count: int, size: int, seed: int) -> list[tuple[np.ndarray, int]]:
    """Returns images in the color of their class, and the classes."""
    random = np.random.default_rng(seed)
    labels = [int(label) for label in random.integers(0, COLORS, count)]
    found = []
    for label in labels:
        image = random.integers(0, 80, (size, size, 3))
        image[..., label] += 150
        found.append((image.astype(np.uint8), label))
    return found


def images(path: pathlib.Path, size: int, first_label: int = 0) -> None:
    """Writes ImageNet's examples: JPEG images in the color of their class."""
    with _writer(path) as writer:
        for image, color in colored_images(_EXAMPLES, size, seed=0):
            label = first_label + color
            encoded = {"image/encoded": _jpeg(image), "image/class/label": [label]}
            writer.write(_example(**encoded))


def pairs_of_images(folder: pathlib.Path, labelled: int) -> None:
    """Writes UDA's CIFAR-10: images in the color of their class, and others in two versions."""
    found = [(image / 127.5 - 1, label) for image, label in colored_images(_EXAMPLES, 32, seed=0)]
    with _writer(folder / f"train-size_{labelled}.tfrecord") as writer:
        for image, label in found[:labelled]:
            writer.write(_example(image=image.ravel(), label=[label]))
    with _writer(folder / "unsup-0.tfrecord") as writer:
        for image, _ in found:
            mirrored = image[:, ::-1]
            writer.write(_example(ori_image=image.ravel(), aug_image=mirrored.ravel()))


def digit_records(path: pathlib.Path) -> None:
    """Writes MNIST's digits as examples of raw bytes."""
    with _writer(path) as writer:
        for image, label in zip(*digits(_EXAMPLES, seed=1), strict=True):
            writer.write(_example(image_raw=image.tobytes(), label=[int(label)]))


def flowers(path: pathlib.Path, count: int) -> None:
    """Writes irises as lines of four lengths and the species, which the third length tells."""
    random = np.random.default_rng(count)
    lines = [f"{count},4,setosa,versicolor,virginica"]
    for _ in range(count):
        species = int(random.integers(3))
        lengths = random.uniform(0.1, 1.0, 4) + np.array([5, 3, 2 * species, 1])
        lines.append(",".join([*(f"{length:.2f}" for length in lengths), str(species)]))
    path.write_text("\n".join(lines) + "\n")


def boxes(path: pathlib.Path, size: int) -> None:
    """Writes COCO's examples: JPEG images with one box in the color of its class, and its mask."""
    with _writer(path) as writer:
        for number, (image, label, box) in enumerate(_boxes(size)):
            left, top, width, height = (side / size for side in box)
            mask = np.zeros((size, size, 1), np.uint8)
            mask[box[1] : box[1] + box[3], box[0] : box[0] + box[2]] = 1
            writer.write(
                _example(
                    **{
                        "image/encoded": _jpeg(image),
                        "image/source_id": str(number).encode(),
                        "image/height": [size],
                        "image/width": [size],
                        "image/object/bbox/xmin": np.array([left], np.float32),
                        "image/object/bbox/xmax": np.array([left + width], np.float32),
                        "image/object/bbox/ymin": np.array([top], np.float32),
                        "image/object/bbox/ymax": np.array([top + height], np.float32),
                        "image/object/class/label": [label + 1],
                        "image/object/area": np.array([box[2] * box[3]], np.float32),
                        "image/object/is_crowd": [0],
                        "image/object/mask": _png(mask),
                    }
                )
            )


def box_annotations(path: pathlib.Path, size: int) -> None:
    """Writes COCO's annotations of the same images."""
    images, found = [], []
    for number, (_, label, box) in enumerate(_boxes(size)):
        left, top, width, height = box
        corners = [left, top, left + width, top, left + width, top + height, left, top + height]
        images.append({"id": number, "width": size, "height": size})
        found.append(
            {
                "id": number + 1,
                "image_id": number,
                "category_id": label + 1,
                "bbox": list(box),
                "area": width * height,
                "iscrowd": 0,
                "segmentation": [corners],
            }
        )
    kinds = [{"id": label + 1, "name": str(label)} for label in range(COLORS)]
    path.write_text(json.dumps({"images": images, "annotations": found, "categories": kinds}))


def _boxes(size: int) -> Iterator[tuple[np.ndarray, int, tuple[int, int, int, int]]]:
    """Yields images, the class of what is in each, and its left, top, width and height."""
    random = np.random.default_rng(0)
    for _ in range(_EXAMPLES // 4):
        label = int(random.integers(COLORS))
        image = random.integers(0, 80, (size, size, 3))
        side = size // 2
        top, left = (int(place) for place in random.integers(0, size - side, 2))
        image[top : top + side, left : left + side, label] += 150
        yield image, label, (left, top, side, side)


def volumes(path: pathlib.Path, size: list[int], channels: int) -> None:
    """Writes volumes of random numbers, with a mask of two classes of what is bright."""
    random = np.random.default_rng(0)
    with _writer(path) as writer:
        for _ in range(_EXAMPLES // 8):
            volume = random.random((*size, channels), np.float32)
            bright = volume[..., 0] > 0.5
            mask = np.stack([~bright, bright], axis=-1).astype(np.float32)
            encoded = {"image/encoded": volume.tobytes(), "image/class/label": mask.tobytes()}
            writer.write(_example(**encoded))


def livers(path: pathlib.Path, size: list[int], classes: int) -> None:
    """Writes scans, compressed, in which the brighter a place the higher its class."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for _ in range(_EXAMPLES // 8):
            scan = random.random(size, np.float32)
            label = np.eye(classes, dtype=np.float32)[(scan * classes).astype(int)]
            raw = {"image/ct_image": scan.tobytes(), "image/label": label.tobytes()}
            writer.write(_example(**raw))


def clicks(folder: pathlib.Path, vocabularies: list[int]) -> None:
    """Writes Criteo's lines after preprocessing: clicks that follow the first dense feature."""
    random = np.random.default_rng(0)
    for part in range(2):
        with (folder / f"{part}.tsv").open("w") as file:
            for _ in range(2 * _EXAMPLES):
                dense = random.random(DENSE_FEATURES)
                ids = [random.integers(size) for size in vocabularies]
                words = [int(dense[0] > 0.5), *(f"{value:.4f}" for value in dense), *ids]
                file.write("\t".join(map(str, words)) + "\n")


def ratings(folder: pathlib.Path, batch: int, epochs: int) -> None:
    """Writes MovieLens after the preprocessing of NCF: a user likes every third movie.

    There are other examples for each epoch. In the evaluation, each batch has the movies of one
    user, of which the user likes the last one only.
    """
    users, items, ranked = 60, 1500, 1000
    random = np.random.default_rng(0)
    steps, judged = 3 * _EXAMPLES // 16, _EXAMPLES // 16

    def write(path: pathlib.Path, examples: list[bytes]) -> None:
        path.parent.mkdir(exist_ok=True)
        with _writer(path) as writer:
            for example in examples:
                writer.write(example)

    def training() -> bytes:
        user, item = random.integers(users, size=batch), random.integers(items, size=batch)
        # Half of them get a movie that they like.
        item[::2] = (item + (user - item) % 3)[::2] % items
        labels = ((user - item) % 3 == 0).astype(np.int64)
        valid = np.ones(batch, np.int64)
        return _example(user_id=user, item_id=item, labels=labels, valid_point_mask=valid)

    def evaluation(user: int) -> bytes:
        item = random.permutation(items)
        liked = (user - item) % 3 == 0
        item = np.concatenate([item[~liked][: ranked - 1], item[liked][:1]])
        repeated = np.zeros(ranked, np.int64)
        return _example(user_id=np.full(ranked, user), item_id=item, duplicate_mask=repeated)

    for epoch in range(epochs):
        examples = [training() for _ in range(steps)]
        write(folder / f"training_cycle_{epoch}" / "shard_0.tfrecords", examples)
    examples = [evaluation(user) for user in range(judged)]
    write(folder / "eval_data" / "shard_0.tfrecords", examples)
    about = {
        "num_users": users,
        "num_items": items,
        "num_train_epochs": epochs,
        "num_train_steps": steps,
        "num_eval_steps": judged,
        "train_prebatch_size": batch,
        "eval_prebatch_size": ranked,
    }
    (folder / "metadata.json").write_text(json.dumps(about))


def _writer(path: pathlib.Path) -> Any:
    import tensorflow as tf

    return tf.io.TFRecordWriter(str(path))


def _example(**features: Any) -> bytes:
    """Returns a serialized tf.train.Example of bytes, numbers and arrays."""
    import tensorflow as tf

    found = {}
    for name, value in features.items():
        if isinstance(value, bytes):
            found[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        elif np.asarray(value).dtype.kind == "f":
            found[name] = tf.train.Feature(float_list=tf.train.FloatList(value=value))
        else:
            found[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=value))
    example = tf.train.Example(features=tf.train.Features(feature=found))
    return bytes(example.SerializeToString())


def _jpeg(image: np.ndarray) -> bytes:
    import tensorflow as tf

    return bytes(tf.io.encode_jpeg(image.astype(np.uint8)).numpy())


def _png(image: np.ndarray) -> bytes:
    import tensorflow as tf

    return bytes(tf.io.encode_png(image).numpy())
