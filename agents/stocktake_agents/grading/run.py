"""Grades what is missing of a run, many texts at a time."""

import asyncio
from collections.abc import Callable, Sequence

from stocktake_agents.grading.book import GradeBook
from stocktake_agents.grading.grader import GradeError, Grader


async def fill_book(
    book: GradeBook, grader: Grader, texts: Sequence[str], concurrency: int, progress: Callable[[], None]
) -> int:
    """Grades every text that the book has no grade for.

    Args:
        book: takes the grades as they come.
        grader: gives them.
        texts: rationales.
        concurrency: texts at a time.
        progress: called after each.

    Returns:
        How many could not be graded.

    Raises:
        ProviderError: the grader cannot be asked; what it gave so far is in the book.
    """
    limit = asyncio.Semaphore(concurrency)

    async def one(text: str) -> bool:
        async with limit:
            try:
                book.put(text, await grader.grade(text))
            except GradeError as error:
                book.put(text, None, str(error))
                return False
            finally:
                progress()
            return True

    tasks = [asyncio.ensure_future(one(text)) for text in book.missing(texts)]
    try:
        return sum(not graded for graded in await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
