"""Both admissions under the one suite."""

import pytest

from harness.admission import InProcessAdmission
from harness.testing.admission_suite import AdmissionSuite, NewAdmission
from tests.coordination.conftest import NewReplica


class TestInProcess(AdmissionSuite):
    @pytest.fixture
    def new_admission(self) -> NewAdmission:
        return InProcessAdmission


class TestRedis(AdmissionSuite):
    @pytest.fixture
    def new_admission(self, replica: NewReplica) -> NewAdmission:
        return replica
