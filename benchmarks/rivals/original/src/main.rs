//! The Rust original under the workloads of `benchmarks.rivals`: prints one number.
//!
//!     original drain|submit|latency DATABASE TASKS SLOTS

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use taskmill::{Domain, DomainKey, DomainTaskContext, Scheduler, TaskError, TaskSubmission, TypedExecutor, TypedTask};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

struct Bench;
impl DomainKey for Bench {
    const NAME: &'static str = "bench";
}

#[derive(Serialize, Deserialize)]
struct Noop;
impl TypedTask for Noop {
    type Domain = Bench;
    const TASK_TYPE: &'static str = "noop";
}

#[derive(Default)]
struct Ran {
    count: AtomicUsize,
    last: Mutex<Option<Instant>>,
    changed: Notify,
}

impl Ran {
    async fn wait_for(&self, count: usize) {
        loop {
            let changed = self.changed.notified();
            if self.count.load(Ordering::SeqCst) >= count {
                return;
            }
            changed.await;
        }
    }
}

struct Executor(Arc<Ran>);
impl TypedExecutor<Noop> for Executor {
    async fn execute<'a>(&'a self, _task: Noop, _ctx: DomainTaskContext<'a, Bench>) -> Result<(), TaskError> {
        *self.0.last.lock().unwrap() = Some(Instant::now());
        self.0.count.fetch_add(1, Ordering::SeqCst);
        self.0.changed.notify_one();
        Ok(())
    }
}

async fn submit(scheduler: &Scheduler, number: usize) {
    let task = TaskSubmission::new("bench::noop").key(format!("{number}")).payload_json(&Noop);
    scheduler.submit(&task).await.expect("stored");
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().collect();
    let (workload, database) = (words[1].as_str(), &words[2]);
    let (tasks, slots): (usize, usize) = (words[3].parse().unwrap(), words[4].parse().unwrap());
    let ran = Arc::new(Ran::default());
    let scheduler = Scheduler::builder()
        .store_path(database)
        .domain(Domain::<Bench>::new().task::<Noop>(Executor(ran.clone())))
        .max_concurrency(slots)
        .build()
        .await
        .expect("opened");
    let stop = CancellationToken::new();
    let number = match workload {
        "drain" => {
            for number in 0..tasks {
                submit(&scheduler, number).await;
            }
            let began = Instant::now();
            let running = tokio::spawn({
                let (scheduler, stop) = (scheduler.clone(), stop.clone());
                async move { scheduler.run(stop).await }
            });
            ran.wait_for(tasks).await;
            let took = began.elapsed().as_secs_f64();
            stop.cancel();
            running.await.unwrap();
            tasks as f64 / took
        }
        "submit" => {
            let began = Instant::now();
            for number in 0..tasks {
                submit(&scheduler, number).await;
            }
            tasks as f64 / began.elapsed().as_secs_f64()
        }
        "latency" => {
            let running = tokio::spawn({
                let (scheduler, stop) = (scheduler.clone(), stop.clone());
                async move { scheduler.run(stop).await }
            });
            let mut waits = Vec::new();
            for number in 0..tasks {
                let began = Instant::now();
                submit(&scheduler, number).await;
                ran.wait_for(number + 1).await;
                let started = ran.last.lock().unwrap().expect("it ran");
                waits.push(started.duration_since(began).as_secs_f64() * 1000.0);
                // The queue is idle between two tasks, as in the other programs.
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            stop.cancel();
            running.await.unwrap();
            waits.sort_by(f64::total_cmp);
            waits[waits.len() / 2]
        }
        other => panic!("unknown workload {other}"),
    };
    println!("{number}");
}
