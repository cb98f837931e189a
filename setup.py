"""What pyproject.toml cannot say: wheels have the recipe that `unitk quickstart` reads."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

RECIPE = Path(__file__).parent / "recipes" / "quickstart"


class BuildWithRecipe(build_py):
    """Builds the packages, and copies the recipe into the wheel."""

    def run(self):
        super().run()
        if self.editable_mode:  # a clone has it in recipes/
            return
        sample = (RECIPE / "data" / "squad-v1.1-nqg-split").iterdir()
        for path in (RECIPE / "finetune.yaml", RECIPE / "data" / "README.md", *sample):
            dest = Path(self.build_lib, "unitk", "quickstart", path.relative_to(RECIPE))
            self.mkpath(str(dest.parent))
            self.copy_file(str(path), str(dest))


setup(cmdclass={"build_py": BuildWithRecipe})
