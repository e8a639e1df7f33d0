//! Meter of the steps of one validation.

/// Reason why a validation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// A rule is broken.
    Invalid,
    /// The validation takes more steps than allowed.
    Steps,
    /// The rules read more values than allowed.
    Nodes,
    /// Rules are nested deeper than allowed.
    Depth,
    /// A number's exponent has more digits than are compared.
    Exponent,
}

/// Counter of the steps that are left. One step is about ten nanoseconds of work in a release build.
#[derive(Debug)]
pub(super) struct StepMeter {
    left: u64,
}

impl StepMeter {
    pub(super) fn new(steps: u64) -> StepMeter {
        StepMeter { left: steps }
    }

    /// Takes steps off the meter.
    ///
    /// # Errors
    /// [`Stop::Steps`] when fewer are left.
    pub(super) fn spend(&mut self, steps: u64) -> Result<(), Stop> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(Stop::Steps)
            }
        }
    }

    /// Returns the steps that are left.
    pub(super) fn left(&self) -> u64 {
        self.left
    }
}
