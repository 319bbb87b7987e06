"""The timetables of torch.distributed.pipelining, as an oracle: its schedule classes on stages that are never run."""

from unittest import mock

from torch.distributed.pipelining import schedules as torch_schedules
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, _PipelineScheduleRuntime
from torch.distributed.pipelining.stage import PipelineStage

from mlsyslab.pipeline import Action, Schedule

CLASSES = {"GPipe": "ScheduleGPipe", "1F1B": "Schedule1F1B", "interleaved": "ScheduleInterleaved1F1B",
           "looped BFS": "ScheduleLoopedBFS", "ZB-V": "ScheduleZBVZeroBubble", "DualPipeV": "ScheduleDualPipeV"}


def torch_schedule(name: str, p: int, m: int, v: int = 1):
    """torch's schedule object for p ranks of v stages each."""
    kind = getattr(torch_schedules, CLASSES[name])
    stages = []
    for chunk in range(v):
        stage = mock.NonCallableMagicMock(spec=PipelineStage)
        stage.group_rank, stage.group_size, stage.num_stages, stage.stage_index = 0, p, p * v, chunk * p
        stage.has_backward, stage.is_first, stage.is_last, stage.submod = True, False, False, None
        stages.append(stage)
    # putting in the communication takes most of the time, is not compared, and never ends for some m < p
    with mock.patch.object(_PipelineScheduleRuntime, "_prepare_schedule_with_comms"):
        return kind(stages[0] if issubclass(kind, PipelineScheduleSingle) else stages, m)


def torch_order(name: str, p: int, m: int, v: int = 1) -> Schedule:
    """The same timetable as ours is written: without waiting slots, communication and the reduction of gradients."""
    schedule = torch_schedule(name, p, m, v)
    order = schedule._get_pipeline_order() if isinstance(schedule, PipelineScheduleSingle) else schedule.pipeline_order
    return Schedule(name, [[action for cell in order[rank] if cell for action in _ours(cell)] for rank in range(p)])


def _ours(cell) -> list[Action]:
    if cell.sub_actions:
        first, second = (_ours(part)[0] for part in cell.sub_actions)
        return [first._replace(joined=True), second]
    kind = cell.computation_type.value
    return [Action(cell.stage_index, kind, cell.microbatch_index)] if kind in ("F", "B", "I", "W") else []
