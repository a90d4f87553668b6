from .catalog import PROTOCOLS as PROTOCOLS
from .catalog import get_protocol as get_protocol
from .combining import (
    Combined as Combined,
)
from .combining import (
    MemberScore as MemberScore,
)
from .combining import (
    aggregate as aggregate,
)
from .combining import (
    combine as combine,
)
from .errors import MissingMemberError as MissingMemberError
from .errors import ProtocolError as ProtocolError
from .gains import (
    PairedGain as PairedGain,
)
from .gains import (
    gains_between as gains_between,
)
from .gains import (
    paired_gain as paired_gain,
)
from .protocol import Member as Member
from .protocol import Protocol as Protocol
from .run_results import MemberResult as MemberResult
from .run_results import read_member as read_member
