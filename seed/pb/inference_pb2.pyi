from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_TRAIN: _ClassVar[Role]
    ROLE_EVAL: _ClassVar[Role]

class StepFlag(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STEP_FLAG_NONE: _ClassVar[StepFlag]
    STEP_FLAG_IS_FIRST: _ClassVar[StepFlag]
    STEP_FLAG_TERMINATED: _ClassVar[StepFlag]
    STEP_FLAG_TRUNCATED: _ClassVar[StepFlag]
ROLE_TRAIN: Role
ROLE_EVAL: Role
STEP_FLAG_NONE: StepFlag
STEP_FLAG_IS_FIRST: StepFlag
STEP_FLAG_TERMINATED: StepFlag
STEP_FLAG_TRUNCATED: StepFlag

class GetTaskRequest(_message.Message):
    __slots__ = ("protocol_version", "role")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    role: Role
    def __init__(self, protocol_version: _Optional[int] = ..., role: _Optional[_Union[Role, str]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("protocol_version", "env_id", "env_settings_json", "envs_per_group", "num_groups", "base_seed")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    ENV_ID_FIELD_NUMBER: _ClassVar[int]
    ENV_SETTINGS_JSON_FIELD_NUMBER: _ClassVar[int]
    ENVS_PER_GROUP_FIELD_NUMBER: _ClassVar[int]
    NUM_GROUPS_FIELD_NUMBER: _ClassVar[int]
    BASE_SEED_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    env_id: str
    env_settings_json: str
    envs_per_group: int
    num_groups: int
    base_seed: int
    def __init__(self, protocol_version: _Optional[int] = ..., env_id: _Optional[str] = ..., env_settings_json: _Optional[str] = ..., envs_per_group: _Optional[int] = ..., num_groups: _Optional[int] = ..., base_seed: _Optional[int] = ...) -> None: ...

class ArraySpec(_message.Message):
    __slots__ = ("name", "dtype", "shape", "num_values", "minimum", "maximum")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    NUM_VALUES_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    num_values: int
    minimum: float
    maximum: float
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., num_values: _Optional[int] = ..., minimum: _Optional[float] = ..., maximum: _Optional[float] = ...) -> None: ...

class EnvSpec(_message.Message):
    __slots__ = ("observations", "action")
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    observations: _containers.RepeatedCompositeFieldContainer[ArraySpec]
    action: ArraySpec
    def __init__(self, observations: _Optional[_Iterable[_Union[ArraySpec, _Mapping]]] = ..., action: _Optional[_Union[ArraySpec, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "run_id", "role", "group_sizes", "spec")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZES_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    run_id: str
    role: Role
    group_sizes: _containers.RepeatedScalarFieldContainer[int]
    spec: EnvSpec
    def __init__(self, protocol_version: _Optional[int] = ..., run_id: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., group_sizes: _Optional[_Iterable[int]] = ..., spec: _Optional[_Union[EnvSpec, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("run_name", "envs_connected", "silence_limit_s")
    RUN_NAME_FIELD_NUMBER: _ClassVar[int]
    ENVS_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    SILENCE_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    run_name: str
    envs_connected: int
    silence_limit_s: float
    def __init__(self, run_name: _Optional[str] = ..., envs_connected: _Optional[int] = ..., silence_limit_s: _Optional[float] = ...) -> None: ...

class EnvOutputs(_message.Message):
    __slots__ = ("group", "observations", "rewards", "step_flags", "episodes", "failures")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    REWARDS_FIELD_NUMBER: _ClassVar[int]
    STEP_FLAGS_FIELD_NUMBER: _ClassVar[int]
    EPISODES_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    group: int
    observations: _containers.RepeatedScalarFieldContainer[bytes]
    rewards: bytes
    step_flags: bytes
    episodes: _containers.RepeatedCompositeFieldContainer[Episode]
    failures: int
    def __init__(self, group: _Optional[int] = ..., observations: _Optional[_Iterable[bytes]] = ..., rewards: _Optional[bytes] = ..., step_flags: _Optional[bytes] = ..., episodes: _Optional[_Iterable[_Union[Episode, _Mapping]]] = ..., failures: _Optional[int] = ...) -> None: ...

class Episode(_message.Message):
    __slots__ = ("env", "episode_return", "length")
    ENV_FIELD_NUMBER: _ClassVar[int]
    EPISODE_RETURN_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    env: int
    episode_return: float
    length: int
    def __init__(self, env: _Optional[int] = ..., episode_return: _Optional[float] = ..., length: _Optional[int] = ...) -> None: ...

class SignOfLife(_message.Message):
    __slots__ = ("group", "busy_s", "envs_ready")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    BUSY_S_FIELD_NUMBER: _ClassVar[int]
    ENVS_READY_FIELD_NUMBER: _ClassVar[int]
    group: int
    busy_s: float
    envs_ready: int
    def __init__(self, group: _Optional[int] = ..., busy_s: _Optional[float] = ..., envs_ready: _Optional[int] = ...) -> None: ...

class Actions(_message.Message):
    __slots__ = ("group", "actions")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    group: int
    actions: bytes
    def __init__(self, group: _Optional[int] = ..., actions: _Optional[bytes] = ...) -> None: ...

class ActRequest(_message.Message):
    __slots__ = ("hello", "env_outputs", "sign_of_life")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ENV_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    SIGN_OF_LIFE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    env_outputs: EnvOutputs
    sign_of_life: SignOfLife
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., env_outputs: _Optional[_Union[EnvOutputs, _Mapping]] = ..., sign_of_life: _Optional[_Union[SignOfLife, _Mapping]] = ...) -> None: ...

class ActResponse(_message.Message):
    __slots__ = ("welcome", "actions")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    actions: Actions
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., actions: _Optional[_Union[Actions, _Mapping]] = ...) -> None: ...
