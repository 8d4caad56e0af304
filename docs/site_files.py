"""Of the documentation's site: it also has the repository's files that its pages link to (`../config/claims.yaml`)."""

import re
from pathlib import Path

from mkdocs.structure.files import File


def on_files(files, config):
    root = Path(config.docs_dir).parent
    pages = (page.content_string for page in files.documentation_pages())
    for name in sorted({name for text in pages for name in re.findall(r"\]\(\.\./([^)#]+)", text)}):
        files.append(File.generated(config, f"files/{name}", abs_src_path=str(root / name)))
    return files


def on_page_markdown(markdown, **_):
    return markdown.replace("](../", "](files/")
