"""Package metadata; tool settings are in pyproject.toml, tested versions in constraints.txt."""

import re
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

here = Path(__file__).parent
readme = here / "README.md"
version = re.search(r'VERSION = "(.+)"', (here / "unitk" / "files.py").read_text("utf-8"))


class BuildWithRecipe(build_py):
    """Builds the packages, and puts the recipe that `unitk quickstart` reads into the wheel."""

    def run(self):
        super().run()
        if self.editable_mode:  # a clone has it in recipes/
            return
        recipe = here / "recipes" / "quickstart"
        sample = (recipe / "data" / "squad-v1.1-nqg-split").iterdir()
        for path in (recipe / "finetune.yaml", recipe / "data" / "README.md", *sample):
            dest = Path(self.build_lib, "unitk", "quickstart", path.relative_to(recipe))
            self.mkpath(str(dest.parent))
            self.copy_file(str(path), str(dest))


setup(
    name="unitk",
    version=version[1],
    description="One toolkit to pre-train, fine-tune and decode unified language models",
    long_description=readme.read_text("utf-8") if readme.exists() else "",
    long_description_content_type="text/markdown",
    author="unitk developers",
    # the code; then what the bundled models were trained on (NOTICE)
    license_expression="MIT AND Apache-2.0 AND CC-BY-4.0 AND CC-BY-SA-4.0"
    " AND LicenseRef-CC-BY-2.0-FR",
    license_files=["LICENSE", "NOTICE"],
    classifiers=[
        "Intended Audience :: Science/Research",
        "Operating System :: OS Independent",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["unitk", "unitk.*", "unitk_cli", "unitk_cli.*"]),
    package_dir={"": "."},  # editable installs are then a path, which mypy and pyright follow
    cmdclass={"build_py": BuildWithRecipe},
    package_data={
        "unitk": ["py.typed", "keywords.pyi", "families/cloze/sets/*.yaml", "options/ready/*.yaml"],
        "unitk.pretrained": ["*/*", "*/vocab/*"],
        "unitk.api": ["page/*"],
        "unitk.comparison": ["page/*"],
        "unitk.serving": ["page/*"],
    },
    entry_points={"console_scripts": ["unitk = unitk_cli.main:main"]},
    python_requires=">=3.11",
    install_requires=[
        "torch>=2.10",
        "numpy>=1.26",
        "sentencepiece>=0.2.2",
        "tokenizers>=0.20",
        "safetensors>=0.4.5",
        "click>=8.1",
        "pyyaml>=6.0",
        "regex>=2024.9.11",
        "rich>=13.7",
        "matplotlib>=3.8",
        "sacrebleu>=2.4",
        "rouge-score>=0.1.2",
        "starlette>=0.40",
        "uvicorn>=0.30",
    ],
    extras_require={
        "tensorboard": ["tensorboard"],
        "parquet": ["pyarrow"],
        "zstandard": ["zstandard"],
        "chinese": ["jieba"],
        "score": ["scikit-learn", "scipy"],
        "latent": ["scikit-learn", "umap-learn"],
        "lm-eval": ["lm-eval"],
        "ctranslate2": ["ctranslate2", "transformers>=5"],
        "hub": ["huggingface-hub"],
        "elmo": ["h5py"],
        "gguf": ["gguf"],
        "fairseq": ["fairseq-fixed>=0.12.3.1"],
        "onnx": ["onnx", "transformers>=5"],
        "docs": ["mkdocs-material"],
        "dev": [
            "httpx",
            "hypothesis",
            "mypy",
            "protobuf",  # transformers reads sentencepiece models with it
            "pyarrow",
            "pytest",
            "pytest-xdist",
            "ruff",
            "scikit-learn",
            "scipy",
            "transformers>=5",
            "types-PyYAML",
            "zstandard",
        ],
    },
)
