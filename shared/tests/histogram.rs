//! Histograms: what is added up is what was counted, and a percentile is right within a bucket.
#![allow(clippy::unwrap_used, missing_docs)]

use proptest::collection::vec;
use proptest::prelude::*;
use tokscope_shared::field::{Field, Int, List};
use tokscope_shared::report::own::Distribution;
use tokscope_shared::stats::{Histogram, percentile, sorted};

fn of(values: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    values.iter().for_each(|us| histogram.record(*us));
    histogram
}

fn both(a: &Histogram, b: &Histogram) -> Histogram {
    let mut sum = a.clone();
    sum.merge(b);
    sum
}

/// Times of all magnitudes, small ones and equal ones as well.
fn times() -> impl Strategy<Value = Vec<u64>> {
    vec(prop_oneof![0u64..200, (0u32..53).prop_flat_map(|bits| 0..=1u64 << bits)], 0..200)
}

proptest! {
    #[test]
    fn a_sum_is_the_histogram_of_all_in_whatever_order(a in times(), b in times(), c in times()) {
        let (all, [a, b, c]) = (of(&[&a[..], &b, &c].concat()), [of(&a), of(&b), of(&c)]);
        prop_assert_eq!(both(&a, &b), both(&b, &a));
        prop_assert_eq!(both(&both(&a, &b), &c), both(&a, &both(&b, &c)));
        prop_assert_eq!(all.count(), a.count() + b.count() + c.count());
        prop_assert_eq!(both(&both(&a, &b), &c), all);
    }

    #[test]
    fn a_percentile_is_off_by_less_than_half_a_bucket(values in times(), p in 0.0f64..=100.0) {
        let exact = percentile(&sorted(values.iter().map(|us| *us as f64)), p);
        let found = of(&values).quantile(p);
        prop_assert_eq!(exact.is_some(), found.is_some());
        if let (Some(exact), Some(found)) = (exact, found) {
            // The wider of the two values' buckets is that of the larger.
            let rank = ((values.len() - 1) as f64 * p / 100.0).ceil() as usize;
            let mut values = values;
            values.sort_unstable();
            let bucket = if values[rank] < 128 { 0.0 } else { values[rank] as f64 / 64.0 };
            prop_assert!((exact - found).abs() <= bucket / 2.0 + 1e-9 * exact, "{exact} {found}");
        }
    }

    #[test]
    fn buckets_give_the_same_histogram_again(values in times()) {
        let histogram = of(&values);
        let buckets: Vec<(u64, u64)> = histogram.buckets().collect();
        prop_assert!(buckets.is_sorted_by(|a, b| a.0 < b.0) && buckets.iter().all(|(_, n)| *n > 0));
        prop_assert_eq!(Histogram::from_buckets(buckets.clone()), Some(histogram.clone()));
        prop_assert_eq!(Histogram::from_buckets(buckets.into_iter().rev()), Some(histogram.clone()));
    }
}

#[test]
fn buckets_are_exact_at_first_and_then_sixty_four_a_power_of_two() {
    let bounds = |values: &[u64]| of(values).buckets().collect::<Vec<_>>();
    assert_eq!(bounds(&[0, 1, 63, 64, 127]), [0, 1, 63, 64, 127].map(|us| (us, 1)));
    assert_eq!(bounds(&[128, 129, 130, 255, 256, 259, 260]), [(128, 2), (130, 1), (254, 1), (256, 2), (260, 1)]);
    let all: Vec<u64> = (0..1 << 14).collect();
    assert_eq!(of(&all).buckets().count(), 64 + 8 * 64);
    assert_eq!(of(&[20_000]).quantile(50.0), Some(19_968.0 + 127.5));
}

#[test]
fn a_bound_that_is_no_buckets_is_refused() {
    assert_eq!(Histogram::from_buckets([(128, 1), (129, 1)]), None);
    assert_eq!(Histogram::from_buckets([(u64::MAX, 1)]), None);
    assert_eq!(Histogram::from_buckets([]), Some(Histogram::default()));
    assert_eq!(Histogram::from_buckets([(5, 0)]), Some(Histogram::default()), "nothing in a bucket is nothing");
}

#[test]
fn what_is_too_large_ends_at_the_largest() {
    let mut histogram = of(&[u64::MAX, 1 << 53]);
    let largest = (1u64 << 53) - (1 << 46);
    assert_eq!(histogram.buckets().collect::<Vec<_>>(), [(largest, 2)]);
    assert!((histogram.quantile(100.0).unwrap() / (1u64 << 53) as f64 - 1.0).abs() < 1.0 / 128.0);
    histogram.record_n(7, u64::MAX);
    histogram.record_n(7, u64::MAX);
    assert_eq!(histogram.count(), u64::MAX);
    assert_eq!(histogram.quantile(50.0), Some(7.0));
    assert!(histogram.quantile(100.0).is_some());
    assert_eq!((Histogram::default().quantile(50.0), Histogram::default().count()), (None, 0));
}

#[test]
fn a_distribution_gives_its_histogram_or_none() {
    let list = |values: &[i64]| Field::Is(values.iter().map(|n| Int((*n).into())).collect::<List<Int>>());
    let with = |us: Field<List<Int>>, n| Distribution { bucket_us: us, bucket_n: n, ..Distribution::default() }.histogram();
    assert_eq!(with(list(&[7, 128]), list(&[2, 1])), Some(of(&[7, 7, 129])));
    assert_eq!(with(list(&[]), list(&[])), Some(Histogram::default()));
    for (us, n) in [(&[7, 128][..], &[2][..]), (&[7], &[2, 1]), (&[129], &[1]), (&[-1], &[1]), (&[7], &[-1])] {
        assert_eq!(with(list(us), list(n)), None, "{us:?} {n:?}");
    }
    let hole = Field::Is(List(vec![Field::Is(Int(7.into())), Field::Null]));
    assert_eq!(with(list(&[7, 128]), hole), None);
    assert_eq!(with(Field::Null, Field::Null), None, "missing is not empty");
    assert_eq!(Distribution::default().histogram(), None);
}
