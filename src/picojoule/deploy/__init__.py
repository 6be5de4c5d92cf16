"""What becomes of a trained network: conversion, an event-driven engine, files for chips and other tools."""
