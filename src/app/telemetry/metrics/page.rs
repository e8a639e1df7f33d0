//! Encoding of metric families whose values are at hand.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::domain::measure::Seen;

/// Names and values of labels, all from closed lists.
pub(super) type Labels = Vec<(&'static str, &'static str)>;

/// The page that is being written.
pub(super) struct MetricsPage<'a>(pub(super) DescriptorEncoder<'a>);

impl MetricsPage<'_> {
    /// Writes a gauge.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// Writes a gauge unless its value is `None`.
    pub(super) fn maybe_gauge(&mut self, name: &str, help: &str, value: Option<f64>) -> fmt::Result {
        value.map_or(Ok(()), |value| self.gauge(name, help, value))
    }

    /// Writes gauges of one family, which differ by labels.
    pub(super) fn gauges(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// Writes a counter, whose `name` is without `_total`.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let mut one = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        one.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    /// Writes counters of one family, which differ by labels. `name` is without `_total`.
    pub(super) fn counters(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
        }
        Ok(())
    }

    /// Writes histograms of durations of one family, which differ by labels.
    pub(super) fn histograms(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, Seen)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, Seen { sum_s, count, buckets }) in values {
            let mut one = family.encode_family(&labels)?;
            one.encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)?;
        }
        Ok(())
    }
}
