//! Writing families of metrics whose values are at hand.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// The page that is being written.
pub(super) struct Page<'a>(pub(super) DescriptorEncoder<'a>);

impl Page<'_> {
    /// A number that goes up and down.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// The same where there may be none.
    pub(super) fn maybe_gauge(&mut self, name: &str, help: &str, value: Option<f64>) -> fmt::Result {
        value.map_or(Ok(()), |value| self.gauge(name, help, value))
    }

    /// Numbers of one kind, told apart by labels.
    pub(super) fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// What only grows, under its name without `_total`.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let mut one = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        one.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }
}
