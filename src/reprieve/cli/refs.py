"""What REF means, for help texts."""

REF_HELP = (
    "An id or a unique beginning of one, a label, `latest`, `~N` (N checkpoints before the latest), a time, or the "
    "point just before something: `call:ID`, `step:NAME`, `turn:N`, `session:ID`"
)
