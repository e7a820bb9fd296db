"""Grading: which hidden processes a rationale says are in trouble this week."""

from stocktake_agents.grading.grader import GRADING_VERSION, Grade, GradeError, Grader
from stocktake_agents.grading.keyword import KeywordGrader
from stocktake_agents.grading.model import ModelGrader

__all__ = ["GRADING_VERSION", "Grade", "GradeError", "Grader", "KeywordGrader", "ModelGrader"]
