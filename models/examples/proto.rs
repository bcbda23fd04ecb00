//! prototype, not committed
use foretide_models::DemandBounds;
use foretide_models::auto::{
    DecisionWindows, OnlineModel, OnlineSettings, SampleOrigin, ServiceLevel,
};
use jiff::SignedDuration;
const QS: [f64; 14] = [
    0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.97, 0.98, 0.99, 0.995,
];
fn read(p: &str) -> Vec<f64> {
    let t = std::fs::read_to_string(p).unwrap();
    let mut v: Vec<f64> = vec![];
    for l in t.lines().skip(1) {
        let f: Vec<&str> = l.split(',').collect();
        v.push(f[1].parse().unwrap_or(f64::NAN));
    }
    for i in 0..v.len() {
        if v[i].is_nan() {
            v[i] = if i > 0 { v[i - 1] } else { 0.0 };
        }
    }
    v
}
#[derive(Clone, Copy)]
struct Rule {
    count: bool,
    last: bool,
}
struct Out {
    u: f64,
    rh: f64,
    act: f64,
}
fn sim(
    d: &[f64],
    from: usize,
    target: f64,
    s: usize,
    b: Option<&[Option<DemandBounds>]>,
    rule: Rule,
) -> Out {
    let first = from - 30;
    let ceil = |x: f64| ((x / target - 1e-9).ceil()).clamp(1.0, 1e5);
    let mut cur = ceil(d[first - 1]);
    let mut rec: Vec<f64> = vec![];
    let mut spec: Vec<f64> = vec![];
    let mut held: Option<f64> = None;
    let mut f: Option<f64> = None;
    for t in first..d.len() {
        let obs = {
            let r = d[t - 1] / (cur * target);
            if (r - 1.0).abs() <= 0.1 {
                cur
            } else {
                ((d[t - 1] / target) - 1e-9).ceil()
            }
        };
        let mut want = obs;
        if let Some(b) = b {
            match b[t - first] {
                None => {
                    held = None;
                    f = None;
                }
                Some(b) => {
                    let h = if rule.count && rule.last {
                        b.replicas(held, target)
                            .map_or_else(|| held.unwrap(), |x| (x - 1e-9).ceil())
                    } else if rule.count {
                        let need = f.map_or(b.hold, |f| f.max(b.raise).min(b.hold));
                        f = Some(need);
                        let r = need / (cur * target) - 1.0;
                        if (-0.05..=0.10).contains(&r) {
                            cur
                        } else {
                            (0.95 * need / target - 1e-9).ceil()
                        }
                    } else {
                        let reference = if rule.last {
                            held.unwrap_or(f64::NAN)
                        } else {
                            cur
                        };
                        let r = b.hold / (reference * target);
                        if (r - 1.0).abs() <= 0.1 {
                            reference
                        } else {
                            (b.hold / target - 1e-9).ceil()
                        }
                    };
                    held = Some(h);
                    want = want.max(h);
                }
            }
        }
        let want = want.clamp(1.0, 1e5);
        rec.push(want);
        let m = rec[rec.len().saturating_sub(5)..]
            .iter()
            .copied()
            .fold(0.0, f64::max);
        cur = if want >= cur { want } else { cur.min(m) };
        spec.push(cur);
    }
    let (mut u, mut rh, mut n, mut act) = (0.0, 0.0, 0.0, 0.0);
    for t in from..d.len() {
        let i = t - first;
        let ready = spec[i.saturating_sub(s)..=i]
            .iter()
            .copied()
            .fold(f64::INFINITY, f64::min);
        if d[t] > 1.1 * ready * target {
            u += 1.0;
        }
        rh += spec[i];
        n += 1.0;
        if spec[i] != spec[i - 1] {
            act += 1.0;
        }
    }
    Out {
        u: 100.0 * u / n,
        rh,
        act: act / n * 1440.0,
    }
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let smooth: usize = args.get(1).map_or(1, |a| a.parse().unwrap());
    let raw_targets = args.get(2).is_some_and(|a| a == "raw");
    let windows = if args.get(3).is_some_and(|a| a == "one") {
        DecisionWindows::One
    } else {
        DecisionWindows::RaiseAndHold
    };
    let native = args.get(4).is_some_and(|a| a == "native");
    let dir = "/work/shared/traces";
    let idx = std::fs::read_to_string(format!("{dir}/index.csv")).unwrap();
    let mut names: Vec<String> = idx
        .lines()
        .skip(1)
        .map(|l| l.split(',').next().unwrap().to_owned())
        .filter(|n| std::path::Path::new(&format!("{dir}/{n}.csv")).exists())
        .collect();
    if native {
        names.retain(|n| !n.starts_with("nab"));
        names.retain(|n| n != "x");
    }
    let rules = [
        (
            "hpa-cur",
            Rule {
                count: false,
                last: false,
            },
        ),
        (
            "hpa-last",
            Rule {
                count: false,
                last: true,
            },
        ),
        (
            "count-cur",
            Rule {
                count: true,
                last: false,
            },
        ),
        (
            "count-last",
            Rule {
                count: true,
                last: true,
            },
        ),
    ];
    for s in [2usize, 5, 10] {
        let work = std::sync::Mutex::new(names.clone());
        let results = std::sync::Mutex::new(vec![]);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let Some(name) = work.lock().unwrap().pop() else {
                            break;
                        };
                        let d = read(&format!("{dir}/{name}.csv"));
                        let from = if 2 * d.len() < 21 * 1440 {
                            d.len() - 4 * 1440
                        } else {
                            7 * 1440
                        };
                        let first = from - 30;
                        let target = d[from..].iter().sum::<f64>() / (d.len() - from) as f64 / 10.0;
                        let sm: Vec<f64> = (0..d.len())
                            .map(|t| {
                                let a = t.saturating_sub(smooth - 1);
                                d[a..=t].iter().sum::<f64>() / (t - a + 1) as f64
                            })
                            .collect();
                        let mut m = OnlineModel::new(
                            OnlineSettings {
                                windows,
                                ..OnlineSettings::new(s as i64)
                            },
                            SignedDuration::from_mins(1),
                            ServiceLevel::Quantile(0.9),
                        );
                        let mut b: Vec<Vec<Option<DemandBounds>>> = vec![vec![]; QS.len()];
                        let mut cov = [0.0f64; 14];
                        let mut nc = 0.0;
                        let w = if windows == DecisionWindows::One {
                            s + 3
                        } else {
                            s + 1
                        };
                        for t in 1..d.len() {
                            m.take(
                                if raw_targets { d[t - 1] } else { sm[t - 1] },
                                SampleOrigin::Measured { raw: raw_targets },
                            );
                            if t >= first {
                                m.calibrate();
                                for (i, q) in QS.iter().enumerate() {
                                    b[i].push(m.bounds(*q));
                                }
                                if t >= from && t + w < d.len() {
                                    nc += 1.0;
                                    let z = d[t..=t + w].iter().copied().fold(0.0, f64::max);
                                    for (i, q) in QS.iter().enumerate() {
                                        if m.upper(*q).is_some_and(|x| z <= x) {
                                            cov[i] += 1.0;
                                        }
                                    }
                                }
                            }
                        }
                        let hpa = sim(&d, from, target, s, None, rules[0].1);
                        let mut row = vec![];
                        for r in rules {
                            for i in 0..QS.len() {
                                let o = sim(&d, from, target, s, Some(&b[i]), r.1);
                                row.push(Out {
                                    u: o.u,
                                    rh: o.rh / hpa.rh,
                                    act: o.act,
                                });
                            }
                        }
                        results.lock().unwrap().push((
                            name,
                            row,
                            hpa.u,
                            hpa.act,
                            cov.map(|c| 100.0 * c / nc),
                        ));
                    }
                });
            }
        });
        let res = results.into_inner().unwrap();
        let n = res.len() as f64;
        let hu = res.iter().map(|r| r.2).sum::<f64>() / n;
        let ha = res.iter().map(|r| r.3).sum::<f64>() / n;
        println!("S={s} traces {n} hpa U {hu:.2} actions {ha:.0}");
        for (k, (rn, _)) in rules.iter().enumerate() {
            let pts: Vec<(f64, f64, f64)> = (0..QS.len())
                .map(|i| {
                    let j = k * QS.len() + i;
                    (
                        res.iter().map(|r| r.1[j].u).sum::<f64>() / n,
                        (res.iter().map(|r| r.1[j].rh.ln()).sum::<f64>() / n).exp(),
                        res.iter().map(|r| r.1[j].act).sum::<f64>() / n,
                    )
                })
                .collect();
            let at = |rh: f64| {
                pts.windows(2)
                    .find(|p| p[0].1 <= rh && p[1].1 >= rh)
                    .map(|p| {
                        let x = (rh - p[0].1) / (p[1].1 - p[0].1);
                        (
                            p[0].0 + x * (p[1].0 - p[0].0),
                            p[0].2 + x * (p[1].2 - p[0].2),
                        )
                    })
            };
            let q = |i: usize| {
                format!(
                    "q{} RH {:.3} U {:.3} a {:.0}",
                    QS[i], pts[i].1, pts[i].0, pts[i].2
                )
            };
            println!(
                "  {rn:10} U@1.186 {:?}  {} {} {} {}",
                at(1.186),
                q(6),
                q(7),
                q(8),
                q(9)
            );
        }
        let c: Vec<f64> = res.iter().map(|r| r.4[6]).collect();
        println!(
            "  coverage q.9 mean {:.2}, within 1: {} of {}  {:?}",
            c.iter().sum::<f64>() / n,
            c.iter().filter(|c| (**c - 90.0).abs() <= 1.0).count(),
            n,
            c.iter().map(|c| format!("{c:.1}")).collect::<Vec<_>>()
        );
    }
}
