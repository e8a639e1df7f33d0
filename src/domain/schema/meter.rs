//! Steps of one validation.

/// Why a validation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// A rule is broken.
    Invalid,
    /// More steps than allowed.
    Steps,
    /// More values than allowed are looked at.
    Nodes,
    /// Rules are nested deeper than allowed.
    Depth,
    /// A number's exponent is longer than is compared.
    Exponent,
}

/// Steps that are left. One step is about ten nanoseconds of work in a release build.
#[derive(Debug)]
pub(super) struct Meter {
    left: u64,
}

impl Meter {
    pub(super) fn new(steps: u64) -> Meter {
        Meter { left: steps }
    }

    /// Takes steps.
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

    /// Steps that are left.
    pub(super) fn left(&self) -> u64 {
        self.left
    }
}
