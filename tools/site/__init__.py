"""Maintainers only: the course as a site of plain HTML files, read from disk. Knows nothing about what a lesson teaches.

    python -m tools.site                 build/site/html, from the committed notebooks: nothing is executed, nothing fetched

`pages` lays out what Sphinx reads (copies of the notebooks and pages, in build/site/source), `links` rewrites their links,
`docstrings` turns our docstrings into reStructuredText, `extension` is what Sphinx is taught (formulas as MathML, a page
for each source file), `audit` reads what came out: every link leads somewhere, and no page needs a network.
The configuration and the pages that exist only there are in docs/site.
"""
