"""Arms: what an agent is told before it plays, and what is shown to it while it does."""

from stocktake_agents.arms.arm import Arm, Lens

__all__ = ["Arm", "Lens"]
